"""Official implementations of optimizers on a small problem in f64, for the tests of ours.

What it needs, in an environment of its own:

    pip install torch prodigyopt==1.1.2 dadaptation==3.2 schedulefree==1.4.1 dog-optimizer==1.0.3 momo-opt==0.1.0 \
        mechanic-pytorch==0.0.1 parameterfree==0.0.1 jax optax==0.2.8

and three repositories that are no packages, side by side in one folder: github.com/IssamLaradji/sps (commit 6d112a1),
github.com/oval-group/ali-g (c40de14) and github.com/rka97/dowg (e4dbe02). How to run it, from the root of the repository:

    python3 crates/untuned/tests/official/official.py FOLDER [METHOD ...]

It writes `METHOD.json` beside it: for each case the point after every tenth of 200 steps. `points` are where the gradient is
taken, `evaluation` is the point to be judged where that is another one, `rates` is the rate of the step that led to the point.
Of each case it prints the loss at the start, in the middle and at the end; how far a change of the start by 1e-12 has grown;
and how far the same run is from it with torch's usual f32 for scalars. `around` of a case is what a run puts around the
optimizer: weight decay, and a warm-up, in which the rate of step t is multiplied by min((t + 1)/(warmup + 1), 1).

`official` in a case is the very expression that made the optimizer. There `params` is both tensors in one group, `groups` two
groups of which the second does not decay, `mask` the same for optax. `decayed` in a case says how many coordinates decay where
that is not the first four: some implementations can only have one decay for everything.
"""

import contextlib
import copy
import importlib.metadata
import io
import json
import logging
import pathlib
import sys
import warnings

import dadaptation
import dog
import jax
import jax.numpy as jnp
import mechanic_pytorch
import momo
import optax
import parameterfree
import prodigyopt
import schedulefree
import torch
from schedulefree.adamw_schedulefree_paper import AdamWScheduleFreePaper

if __name__ == "__main__":
    SOURCES = pathlib.Path(sys.argv[1])
    sys.path[:0] = [str(path.parent.parent) for path in SOURCES.glob("*/*/__init__.py")]

import alig.th
import alig.th.projection
import dowg
import sps

STEPS = 200
EVERY = 10
START = [1.0, -2.0, 0.5, 3.0, -1.5, 0.25]
# The first four coordinates decay.
DECAYED = 4


def push(t):
    return [0.25 * ((t * i) % 7 - 3) for i in range(1, 7)]


def loss_and_gradient(x, t):
    """Of Σ (a/2)x² + (b/4)x⁴ + 4 with a = 0.5, 1, …, 3 and b = 0.1, 0.2, …, 0.6, and a push that changes from step to step."""
    index = torch.arange(1, 7, dtype=torch.float64)
    pushed = torch.tensor(push(t), dtype=torch.float64)
    loss = (0.25 * index * x**2 + 0.025 * index * x**4 + pushed * x).sum() + 4.0
    return loss, 0.5 * index * x + 0.1 * index * x * x * x + pushed


class Last:
    """The local variables of the last call of a function named `step` in a module of the implementation."""

    def __init__(self):
        self.seen = {}

    def __call__(self, frame, event, _):
        if event == "return" and frame.f_code.co_name in ("step", "_step"):
            self.seen.update(frame.f_locals)


def run_torch(case, start):
    parts = [torch.tensor(start[:DECAYED], dtype=torch.float64), torch.tensor(start[DECAYED:], dtype=torch.float64)]
    names = {"params": parts, "groups": [{"params": [parts[0]]}, {"params": [parts[1]], "weight_decay": 0.0}]}
    optimizer = eval(case["official"], {**globals(), **names})
    if hasattr(optimizer, "train"):
        optimizer.train()
    model = torch.nn.ParameterList(parts)
    average = eval(case["average"], {**globals(), "model": model}) if "average" in case else None
    points, rates, evaluation, losses = [], [], [], []
    for t in range(STEPS):
        loss, gradient = loss_and_gradient(torch.cat(parts), t)
        losses.append(loss.item())
        parts[0].grad, parts[1].grad = gradient[:DECAYED].clone(), gradient[DECAYED:].clone()
        if "warmup" in case:
            for each in optimizer.param_groups:
                each["lr"] = optimizer.defaults["lr"] * min((t + 1) / (case["warmup"] + 1), 1.0)
        if "before" in case:
            case["before"](optimizer, t)
        last = Last()
        sys.setprofile(last)
        if case["call"] == "loss":
            optimizer.step(loss=loss)
        elif case["call"] == "fstar":
            optimizer.step(loss=loss, batch={"meta": {"fstar": torch.tensor([case["fstar"]], dtype=torch.float64)}})
        elif case["call"] == "closure":
            optimizer.step(lambda: loss)
        else:
            optimizer.step()
        sys.setprofile(None)
        if average is not None:
            with torch.no_grad():
                model[0].copy_(parts[0])
                model[1].copy_(parts[1])
            average.step() if hasattr(average, "step") else average.update_parameters(model)
        if (t + 1) % EVERY == 0:
            points.append(torch.cat(parts).tolist())
            if case["rate"] is not None:
                rates.append(float(case["rate"](optimizer, last.seen)))
            if hasattr(optimizer, "eval"):
                other = copy.deepcopy(optimizer)
                other.eval()
                evaluation.append(torch.cat([p for group in other.param_groups for p in group["params"]]).tolist())
            if average is not None:
                averaged = average.averaged_model if hasattr(average, "averaged_model") else average.module
                evaluation.append(torch.cat([p.detach() for p in averaged.parameters()]).tolist())
    return points, evaluation, rates, losses


def run_optax(case, start):
    params = (jnp.array(start[:DECAYED]), jnp.array(start[DECAYED:]))
    optimizer = eval(case["official"], {**globals(), "mask": (True, False)})
    optimizer = optax.with_extra_args_support(optimizer)
    state = optimizer.init(params)
    update = jax.jit(lambda g, state, params, value: optimizer.update(g, state, params, value=value))
    points, rates, evaluation, losses = [], [], [], []
    for t in range(STEPS):
        x = torch.tensor([*params[0].tolist(), *params[1].tolist()], dtype=torch.float64)
        loss, gradient = loss_and_gradient(x, t)
        losses.append(loss.item())
        parts = (jnp.array(gradient[:DECAYED].numpy()), jnp.array(gradient[DECAYED:].numpy()))
        updates, state = update(parts, state, params, loss.item())
        params = optax.apply_updates(params, updates)
        if (t + 1) % EVERY == 0:
            points.append([*params[0].tolist(), *params[1].tolist()])
            if case["rate"] is not None:
                rates.append(float(case["rate"](state, None)))
            if hasattr(state, "weight_sum"):
                judged = optax.contrib.schedule_free_eval_params(state, params)
                evaluation.append([*judged[0].tolist(), *judged[1].tolist()])
    return points, evaluation, rates, losses


def run(case, start=START):
    with contextlib.redirect_stdout(io.StringIO()):
        return (run_optax if case["official"].startswith("optax.") else run_torch)(case, start)


def case(spec, official, decay=0.0, call="plain", rate=None, **more):
    """`decay` repeats that of the expression; `warmup` is a number of steps over which lr grows to its value."""
    return {"spec": spec, "official": official, "weight_decay": decay, "call": call, "rate": rate, **more}


def local(name):
    return lambda _, seen: seen[name]


def group(name):
    return lambda optimizer, _: optimizer.param_groups[0][name]


def dog_rate(optimizer, _):
    return optimizer.param_groups[0]["eta"][0]


def dowg_rate(optimizer, _):
    return optimizer.state["rt2"] / (optimizer.state["vt"].sqrt() + optimizer.eps)


def sps_rate(optimizer, _):
    return optimizer.state["step_size"]


def alig_rate(optimizer, _):
    return optimizer.step_size


def mechanic_rate(optimizer, _):
    return optimizer.state["_mechanic"]["s"].sum() * optimizer.param_groups[0]["lr"]


def eps_again(optimizer, t):
    """The readme of DoG has its eps in every term of the sum, the code once."""
    if t > 0:
        for each in optimizer.param_groups:
            each["G"] += each["eps"]


def older_add(self, *arguments, **named):
    """`add_(factor, tensor)`, which ALI-G was written with and torch no longer has."""
    if len(arguments) == 2:
        return ADD(self, arguments[1], alpha=arguments[0])
    return ADD(self, *arguments, **named)


ADD = torch.Tensor.add_


def warm(peak, steps):
    """The warm-up of optax.contrib.schedule_free_sgd, which computes it in f32, in f64."""
    return lambda count: peak * jnp.minimum(jnp.asarray(count, dtype=jnp.float64) / steps, 1.0)


SGD = "torch.optim.SGD"
ALL = {"decayed": 6}
METHODS = {
    "sgd-momentum": [
        case("sgd-momentum:lr=0.02,momentum=0.9", f"{SGD}(groups, lr=0.02, momentum=0.9)"),
        case("sgd-momentum:lr=0.02,momentum=0.9", f"{SGD}(groups, lr=0.02, momentum=0.9, weight_decay=0.1)", 0.1),
        case(
            "sgd-momentum:lr=0.05,momentum=0.8,dampening=0.3",
            f"{SGD}(groups, lr=0.05, momentum=0.8, dampening=0.3, weight_decay=0.1)",
            0.1,
        ),
        case(
            "sgd-momentum:lr=0.01,momentum=0.95,nesterov=yes",
            f"{SGD}(groups, lr=0.01, momentum=0.95, nesterov=True, weight_decay=0.1)",
            0.1,
        ),
        case("sgd-momentum:lr=0.05,momentum=0", f"{SGD}(groups, lr=0.05, weight_decay=0.1)", 0.1),
        case("sgd-momentum:lr=0.01,momentum=0.95,nesterov=yes", "optax.sgd(0.01, momentum=0.95, nesterov=True)"),
    ],
    "adamw": [
        case("adamw:lr=0.05", "torch.optim.AdamW(groups, lr=0.05, weight_decay=0.1)", 0.1),
        case(
            "adamw:lr=0.05,beta1=0.8,beta2=0.95,eps=1e-3",
            "torch.optim.AdamW(groups, lr=0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1)",
            0.1,
        ),
        case(
            "adamw:lr=0.05,beta1=0.8,beta2=0.95,eps=1e-3",
            "optax.adamw(0.05, b1=0.8, b2=0.95, eps=1e-3, weight_decay=0.1, mask=mask)",
            0.1,
        ),
    ],
    "adagrad": [
        case("adagrad:lr=0.3", "torch.optim.Adagrad(groups, lr=0.3)"),
        case(
            "adagrad:lr=0.5,lr_decay=0.02,initial_accumulator=0.5,eps=0.01",
            "torch.optim.Adagrad(groups, lr=0.5, lr_decay=0.02, initial_accumulator_value=0.5, eps=0.01, weight_decay=0.1)",
            0.1,
        ),
        case("adagrad:lr=0.3,eps_inside=yes,initial_accumulator=0.1,eps=1e-7", "optax.adagrad(0.3)"),
        case(
            "adagrad:lr=0.5,eps_inside=yes,initial_accumulator=0.5,eps=0.5",
            "optax.adagrad(0.5, initial_accumulator_value=0.5, eps=0.5)",
        ),
    ],
    "sps-max": [
        case("sps-max:max_step=0.2", "sps.Sps(params, adapt_flag='constant', eta_max=0.2)", call="loss", rate=sps_rate),
        case(
            "sps-max:c=0.2,max_step=0.3,lower_bound=4",
            "sps.Sps(params, adapt_flag='constant', eta_max=0.3, c=0.2, fstar_flag=True)",
            call="fstar",
            fstar=4.0,
            rate=sps_rate,
        ),
        case(
            "sps-max:c=5,eps=0.5,lower_bound=3",
            "sps.Sps(params, adapt_flag='constant', c=5, eps=0.5, fstar_flag=True)",
            call="fstar",
            fstar=3.0,
            rate=sps_rate,
        ),
        case(
            "sps-max:max_step=0.1,eps=0,lower_bound=4",
            "sps.Sps(params, adapt_flag='constant', eta_max=0.1, eps=0, fstar_flag=True)",
            call="fstar",
            fstar=4.0,
            rate=sps_rate,
        ),
        case(
            "sps-max:cap=smooth,c=5,first_step=0.001,gamma=3,epoch=10",
            "sps.Sps(params, c=5, init_step_size=0.001, gamma=3.0, n_batches_per_epoch=10)",
            call="loss",
            rate=sps_rate,
        ),
    ],
    "ali-g": [
        case("ali-g:max_lr=0.1", "alig.th.AliG(params, max_lr=0.1)", call="closure", rate=alig_rate),
        case("ali-g:eps=30", "alig.th.AliG(params, eps=30)", call="closure", rate=alig_rate),
        case(
            "ali-g:max_lr=0.13,momentum=0.5,eps=30",
            "alig.th.AliG(params, max_lr=0.13, momentum=0.5, eps=30)",
            call="closure",
            rate=alig_rate,
        ),
        case(
            "ali-g:max_lr=0.13,momentum=0.5,eps=30,adjusted_momentum=yes",
            "alig.th.AliG(params, max_lr=0.13, momentum=0.5, eps=30, adjusted_momentum=True)",
            call="closure",
            rate=alig_rate,
        ),
        case(
            "ali-g:max_lr=0.13,momentum=0.5,eps=30,max_norm=0.2",
            "alig.th.AliG(params, max_lr=0.13, momentum=0.5, eps=30,"
            " projection_fn=lambda: alig.th.projection.l2_projection(params, 0.2))",
            call="closure",
            rate=alig_rate,
        ),
    ],
    "dowg": [
        case("dowg", "dowg.DoWG(params)", rate=dowg_rate),
        case("dowg:eps=0.1", "dowg.DoWG(params, eps=0.1)", rate=dowg_rate),
        case("dowg", "optax.contrib.dowg(weight_decay=0.1, mask=mask)", 0.1),
        case(
            "dowg:lr=0.5,r2=0.01,eps=1", "optax.contrib.dowg(0.5, init_estim_sq_dist=0.01, eps=1.0, weight_decay=0.1, mask=mask)", 0.1
        ),
    ],
    "dog": [
        case("dog", "dog.DoG(params)", rate=dog_rate),
        case("dog:eps_rel=0.01", "dog.DoG(params, reps_rel=0.01)", rate=dog_rate),
        case("dog:eps_rel=0.01,eps=2", "dog.DoG(params, reps_rel=0.01, eps=2.0)", rate=dog_rate),
        case(
            "dog:eps_rel=0.01,eps=2,eps_each=yes",
            "dog.DoG(params, reps_rel=0.01, eps=2.0)",
            rate=dog_rate,
            before=eps_again,
            note="eps is added to G before every step but the first: so says the readme, not the code",
        ),
        case("dog:eps_rel=0.01", "dog.DoG(params, reps_rel=0.01, weight_decay=0.1)", 0.1, rate=dog_rate, **ALL),
        case("dog:eps_rel=0.01", "optax.contrib.dog(init_step=('heuristic', 0.01), weight_decay=0.1, mask=mask)", 0.1),
        case("dog:lr=0.5,first_step=0.002", "dog.DoG(params, lr=0.5, init_eta=0.002)", rate=dog_rate),
    ],
    "momo": [
        case("momo:lr=0.05", "momo.Momo(params, lr=0.05)", call="loss", rate=local("tau")),
        case("momo:lower_bound=3.5", "momo.Momo(params, lb=3.5)", call="loss", rate=local("tau")),
        case(
            "momo:lr=0.1,lower_bound=3", "momo.Momo(groups, lr=0.1, lb=3.0, weight_decay=0.1)", 0.1, call="loss", rate=local("tau")
        ),
        case(
            "momo:lr=0.1,beta=0.8,lower_bound=3,bias_correction=yes",
            "momo.Momo(groups, lr=0.1, beta=0.8, lb=3.0, bias_correction=True, weight_decay=0.1)",
            0.1,
            call="loss",
            rate=local("tau"),
        ),
        case("momo:lr=0.1,use_fstar=yes", "momo.Momo(params, lr=0.1, use_fstar=True)", call="loss", rate=local("tau")),
        case(
            "momo:lr=0.1,beta=0.8,bias_correction=yes,use_fstar=yes,lower_bound=1",
            "momo.Momo(params, lr=0.1, beta=0.8, lb=1.0, bias_correction=True, use_fstar=True, weight_decay=0.1)",
            0.1,
            call="loss",
            rate=local("tau"),
            **ALL,
        ),
        case(
            "momo:lr=0.1,lower_bound=3,decay_first=yes",
            "optax.contrib.momo(0.1, lower_bound=3.0, weight_decay=0.1)",
            0.1,
            **ALL,
        ),
    ],
    "momo-adam": [
        case("momo-adam", "momo.MomoAdam(params)", call="loss", rate=local("tau")),
        case(
            "momo-adam:lr=0.1,lower_bound=3",
            "momo.MomoAdam(groups, lr=0.1, lb=3.0, weight_decay=0.1)",
            0.1,
            call="loss",
            rate=local("tau"),
        ),
        case(
            "momo-adam:lr=0.5,beta1=0.8,beta2=0.95,eps=1e-3,lower_bound=3.5,divide=no",
            "momo.MomoAdam(groups, lr=0.5, betas=(0.8, 0.95), eps=1e-3, lb=3.5, divide=False, weight_decay=0.1)",
            0.1,
            call="loss",
            rate=local("tau"),
        ),
        case(
            "momo-adam:lr=0.1,use_fstar=yes,lower_bound=3.8",
            "momo.MomoAdam(params, lr=0.1, lb=3.8, use_fstar=True, weight_decay=0.1)",
            0.1,
            call="loss",
            rate=local("tau"),
            **ALL,
        ),
        case(
            "momo-adam:lr=0.1,lower_bound=3,decay_first=yes",
            "optax.contrib.momo_adam(0.1, lower_bound=3.0, weight_decay=0.1)",
            0.1,
            **ALL,
        ),
    ],
    "prodigy": [
        case("prodigy", "prodigyopt.Prodigy(groups, weight_decay=0.1)", 0.1, rate=local("dlr")),
        case("prodigy:d0=0.01", "prodigyopt.Prodigy(groups, d0=0.01, weight_decay=0.1)", 0.1, rate=local("dlr")),
        case(
            "prodigy:d0=0.001,bias_correction=yes",
            "prodigyopt.Prodigy(groups, d0=0.001, use_bias_correction=True, weight_decay=0.1)",
            0.1,
            rate=local("dlr"),
        ),
        case(
            "prodigy:lr=0.5,beta1=0.8,beta2=0.95,beta3=0.9,eps=1e-3,decouple=no,bias_correction=yes,safeguard_warmup=yes,"
            "d0=0.001,d_coef=2,growth_rate=1.1",
            "prodigyopt.Prodigy(groups, lr=0.5, betas=(0.8, 0.95), beta3=0.9, eps=1e-3, decouple=False, use_bias_correction=True,"
            " safeguard_warmup=True, d0=0.001, d_coef=2, growth_rate=1.1, weight_decay=0.1)",
            0.1,
            rate=local("dlr"),
            warmup=20,
        ),
        case(
            "prodigy:beta1=0,d0=0.001",
            "prodigyopt.Prodigy(groups, betas=(0.0, 0.999), d0=0.001, weight_decay=0.1)",
            0.1,
            rate=local("dlr"),
        ),
        case(
            "prodigy:d0=0.001,bias_correction=yes",
            "optax.contrib.prodigy(estim_lr0=0.001, weight_decay=0.1)",
            0.1,
            **ALL,
        ),
    ],
    "d-adapt-sgd": [
        case("d-adapt-sgd", "dadaptation.DAdaptSGD(params)", rate=local("dlr")),
        case("d-adapt-sgd:d0=0.01", "dadaptation.DAdaptSGD(params, d0=0.01)", rate=local("dlr")),
        case(
            "d-adapt-sgd:d0=0.01,momentum=0.9",
            "dadaptation.DAdaptSGD(params, d0=0.01, momentum=0.9, weight_decay=0.1)",
            0.1,
            rate=local("dlr"),
            **ALL,
        ),
        case(
            "d-adapt-sgd:lr=0.5,momentum=0.8,d0=0.01,growth_rate=1.05",
            "dadaptation.DAdaptSGD(params, lr=0.5, momentum=0.8, d0=0.01, growth_rate=1.05, weight_decay=0.1)",
            0.1,
            rate=local("dlr"),
            **ALL,
        ),
    ],
    "d-adapt-adam": [
        case("d-adapt-adam", "dadaptation.DAdaptAdam(groups, weight_decay=0.1)", 0.1, rate=local("dlr")),
        case("d-adapt-adam:d0=0.001", "dadaptation.DAdaptAdam(groups, d0=0.001, weight_decay=0.1)", 0.1, rate=local("dlr")),
        case(
            "d-adapt-adam:d0=0.001,decouple=yes,bias_correction=yes",
            "dadaptation.DAdaptAdam(groups, d0=0.001, decouple=True, use_bias_correction=True, weight_decay=0.1)",
            0.1,
            rate=local("dlr"),
        ),
        case(
            "d-adapt-adam:lr=0.5,beta1=0.8,beta2=0.95,eps=1e-3,d0=0.001,decouple=yes,growth_rate=1.05",
            "dadaptation.DAdaptAdam(groups, lr=0.5, betas=(0.8, 0.95), eps=1e-3, d0=0.001, decouple=True, growth_rate=1.05,"
            " weight_decay=0.1)",
            0.1,
            rate=local("dlr"),
            warmup=20,
        ),
        case(
            "d-adapt-adam:d0=0.001,decouple=yes,bias_correction=yes",
            "optax.contrib.dadapt_adamw(estim_lr0=0.001, weight_decay=0.1)",
            0.1,
            **ALL,
        ),
    ],
    "schedule-free-sgd": [
        case("schedule-free-sgd:lr=0.1", "schedulefree.SGDScheduleFree(groups, lr=0.1)", rate=group("scheduled_lr")),
        case(
            "schedule-free-sgd:lr=0.1,momentum=0.8,warmup_steps=50,r=1,weight_lr_power=1",
            "schedulefree.SGDScheduleFree(groups, lr=0.1, momentum=0.8, warmup_steps=50, r=1.0, weight_lr_power=1, weight_decay=0.1)",
            0.1,
            rate=group("scheduled_lr"),
        ),
        case(
            "schedule-free-sgd:lr=0.1,warmup_steps=20",
            "schedulefree.SGDScheduleFree(groups, lr=0.1, warmup_steps=20, weight_decay=0.1)",
            0.1,
            rate=group("scheduled_lr"),
        ),
        case(
            "schedule-free-sgd:lr=0.1,warmup_steps=20,late_warmup=yes",
            "optax.contrib.schedule_free(optax.chain(optax.add_decayed_weights(0.1, mask), optax.sgd(warm(0.1, 20))), warm(0.1, 20))",
            0.1,
        ),
    ],
    "schedule-free-adamw": [
        case(
            "schedule-free-adamw:lr=0.1",
            "schedulefree.AdamWScheduleFree(groups, lr=0.1, weight_decay=0.1)",
            0.1,
            rate=group("scheduled_lr"),
        ),
        case(
            "schedule-free-adamw:lr=0.2,beta1=0.8,beta2=0.95,eps=1e-3,warmup_steps=50,r=1,weight_lr_power=1",
            "schedulefree.AdamWScheduleFree(groups, lr=0.2, betas=(0.8, 0.95), eps=1e-3, warmup_steps=50, r=1.0, weight_lr_power=1,"
            " weight_decay=0.1)",
            0.1,
            rate=group("scheduled_lr"),
        ),
        case(
            "schedule-free-adamw:lr=0.1,bias_correction=rate",
            "AdamWScheduleFreePaper(groups, lr=0.1, weight_decay=0.1)",
            0.1,
            rate=group("scheduled_lr"),
        ),
        case(
            "schedule-free-adamw:lr=0.1,decay_at=z",
            "schedulefree.AdamWScheduleFreeReference(groups, lr=0.1, weight_decay=0.1, decay_at_z=True)",
            0.1,
            rate=group("scheduled_lr"),
        ),
    ],
    "mechanic": [
        case(
            "mechanic:base=sgd-momentum,lr=1,momentum=0",
            "mechanic_pytorch.mechanize(torch.optim.SGD)(groups, lr=1.0)",
            rate=mechanic_rate,
        ),
        case(
            "mechanic:base=adamw,lr=1,s_init=0.01",
            "mechanic_pytorch.mechanize(torch.optim.AdamW, s_init=0.01)(groups, lr=1.0, weight_decay=0.1)",
            0.1,
            rate=mechanic_rate,
        ),
        case(
            "mechanic:base=sgd-momentum,lr=0.1,momentum=0.9,s_init=0.01,s_decay=0.1,betas=3,eps=1e-3",
            "mechanic_pytorch.mechanize(torch.optim.SGD, s_init=0.01, s_decay=0.1, betas=(0.9, 0.99, 0.999), eps=1e-3)"
            "(groups, lr=0.1, momentum=0.9, weight_decay=0.1)",
            0.1,
            rate=mechanic_rate,
        ),
        case(
            "mechanic:base=adamw,lr=1,s_init=0.01,store_delta=yes",
            "mechanic_pytorch.mechanize(torch.optim.AdamW, s_init=0.01, store_delta=True)(groups, lr=1.0, weight_decay=0.1)",
            0.1,
            rate=mechanic_rate,
        ),
        case(
            "mechanic:form=optax,s_init=1e-6,base=sgd-momentum,lr=1,momentum=0",
            "optax.contrib.mechanize(optax.sgd(1.0))",
            rate=lambda state, _: state.s.sum(),
        ),
        case(
            "mechanic:form=optax,s_init=0.01,base=adamw,lr=1",
            "optax.contrib.mechanize(optax.adamw(1.0, weight_decay=0.1, mask=mask), s_init=0.01)",
            0.1,
            rate=lambda state, _: state.s.sum(),
        ),
        case(
            "mechanic:form=optax,s_init=0.01,s_decay=0.1,betas=3,eps=1e-3,base=sgd-momentum,lr=0.1,momentum=0.9",
            "optax.contrib.mechanize(optax.sgd(0.1, momentum=0.9), s_init=0.01, weight_decay=0.1, num_betas=3, eps=1e-3)",
            rate=lambda state, _: state.s.sum() * 0.1,
        ),
    ],
    "cocob": [
        case("cocob", "parameterfree.COCOB(groups)"),
        case("cocob", "parameterfree.COCOB(groups, weight_decay=0.1)", 0.1),
        case("cocob:alpha=10,eps=5", "parameterfree.COCOB(groups, alpha=10, eps=5.0, weight_decay=0.1)", 0.1),
        case("cocob", "optax.contrib.cocob(weight_decay=0.1, mask=mask)", 0.1),
    ],
    "averages": [
        case("sgd-momentum:lr=0.02,momentum=0", f"{SGD}(groups, lr=0.02)", average="dog.PolynomialDecayAverager(model)"),
        case("sgd-momentum:lr=0.02,momentum=0", f"{SGD}(groups, lr=0.02)", average="dog.PolynomialDecayAverager(model, gamma=2.0)"),
        case(
            "sgd-momentum:lr=0.02,momentum=0",
            f"{SGD}(groups, lr=0.02)",
            average="torch.optim.swa_utils.AveragedModel(model,"
            " multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.95))",
        ),
    ],
}
PACKAGES = {
    "sgd-momentum": "torch",
    "adamw": "torch",
    "adagrad": "torch",
    "sps-max": "github.com/IssamLaradji/sps 6d112a1",
    "ali-g": "github.com/oval-group/ali-g c40de14",
    "dowg": "github.com/rka97/dowg e4dbe02",
    "dog": "dog-optimizer",
    "momo": "momo-opt",
    "momo-adam": "momo-opt",
    "prodigy": "prodigyopt",
    "d-adapt-sgd": "dadaptation",
    "d-adapt-adam": "dadaptation",
    "schedule-free-sgd": "schedulefree",
    "schedule-free-adamw": "schedulefree",
    "mechanic": "mechanic-pytorch",
    "cocob": "parameterfree",
    "averages": "dog-optimizer",
}


def package(name):
    return name if "/" in name else f"{name} {importlib.metadata.version(name)}"


def distance(one, other):
    """The largest difference of two walks relative to the largest coordinate of a row."""
    rows = zip(one, other, strict=True)
    return max(max(abs(a - b) for a, b in zip(x, y, strict=True)) / max(map(abs, x)) for x, y in rows)


def described(method, case):
    points, evaluation, rates, losses = run(case)
    moved = run(case, [x * (1 + 1e-12) for x in START])[0]
    torch.set_default_dtype(torch.float32)
    rough = run(case)[0]
    torch.set_default_dtype(torch.float64)
    print(
        f"{method:20} {losses[0]:8.4f} {losses[100]:8.4f} {losses[-1]:8.4f}  grown {distance(points, moved) / 1e-12:8.1e}"
        f"  f32 {distance(points, rough):7.1e}  {case['official'][:70]}"
    )
    one = {"spec": case["spec"]}
    if case["official"].startswith("optax."):
        one["package"] = package("optax")
    if "swa_utils" in case.get("average", ""):
        one["package"] = package("torch")
    around = {name: case[name] for name in ("weight_decay", "warmup") if case.get(name)}
    if around:
        one["around"] = around
    if "decayed" in case:
        one["decayed"] = case["decayed"]
    one["official"] = case["official"]
    one |= {name: case[name] for name in ("average", "note") if name in case}
    one["points"] = points
    if evaluation:
        one["evaluation"] = evaluation
    if rates:
        one["rates"] = rates
    return one


def compact(value, depth=0):
    """JSON with a line for each row of numbers; floats are printed so that they read back exactly."""
    if isinstance(value, dict):
        inner = ",\n".join(f"{' ' * (depth + 1)}{json.dumps(k)}: {compact(v, depth + 1)}" for k, v in value.items())
        return "{\n" + inner + "\n" + " " * depth + "}"
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        inner = ",\n".join(" " * (depth + 1) + compact(v, depth + 1) for v in value)
        return "[\n" + inner + "\n" + " " * depth + "]"
    return json.dumps(value, separators=(",", ":"))


def main():
    torch.set_default_dtype(torch.float64)
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.Tensor.add_ = older_add
    for method in sys.argv[2:] or METHODS:
        cases = [described(method, case) for case in METHODS[method]]
        golden = {
            "package": package(PACKAGES[method]),
            "steps": STEPS,
            "start": START,
            "decayed": DECAYED,
            "cases": cases,
        }
        pathlib.Path(__file__).with_name(f"{method}.json").write_text(compact(golden) + "\n")


if __name__ == "__main__":
    main()
