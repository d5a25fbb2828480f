"""What is refused, and what the message says."""

from __future__ import annotations

import inspect
import warnings

import pytest
import torch
from conftest import ALL, batches, bits, loss_of, network, same_bits, spec, train

import untuned


def test_refused_steps():
    model = network()
    optimizer = untuned.PolyakAdam(model, total_steps=100, max_refusals=3)
    train(model, optimizer, 2)
    before = bits(model)
    state = {k: {n: v.clone() for n, v in s.items()} for k, s in optimizer.state_dict()["state"].items()}

    def bad(loss: float, gradient: float | None = None):
        optimizer.zero_grad()
        loss_of(model, batches(1)[0]).backward()
        if gradient is not None:
            model.out.weight.grad[0, 0] = gradient
        optimizer.step(loss)

    with pytest.warns(UserWarning, match="step 2: the loss is NaN. The step was not made") as caught:
        bad(float("nan"))
    assert len(caught) == 1 and optimizer.steps == 3
    with pytest.warns(UserWarning) as caught:
        bad(1.0, float("inf"))
    assert any("step 3" in str(w.message) and "the gradient of parameter 'out.weight'" in str(w.message) for w in caught)
    assert same_bits(bits(model), before)
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(after[k][n], v) for k, s in state.items() for n, v in s.items())
    with pytest.raises(RuntimeError, match="3 steps in a row were refused"):
        bad(float("inf"))
    assert same_bits(bits(model), before)
    train(model, optimizer, 1)
    with pytest.warns(UserWarning, match="was not made"):
        bad(float("nan"))


def test_steps():
    model = network()
    with pytest.raises(ValueError, match=r'untuned.PolyakAdam\(model, total_steps=10_000\), or decay="none"'):
        untuned.PolyakAdam(model)
    untuned.PolyakAdam(model, decay="none")
    untuned.Prodigy(model)
    with pytest.raises(ValueError, match="InexactPolyak needs the number of steps"):
        untuned.InexactPolyak(model)
    for steps in (0, -1, 1.5, "10", True):
        with pytest.raises(ValueError, match="must be a whole number above 0"):
            untuned.PolyakAdam(model, total_steps=steps)
    optimizer = untuned.PolyakAdam(model, total_steps=3)
    train(model, optimizer, 3)
    before = bits(model)
    with pytest.raises(RuntimeError, match="made for total_steps=3, and they are over"):
        train(model, optimizer, 1)
    assert same_bits(bits(model), before)


def test_parameters_that_cannot_be_trained():
    def refused(error, match, params):
        with pytest.raises(error, match=match):
            untuned.PolyakAdam(params, total_steps=5)

    refused(ValueError, "there are no parameters", [])
    refused(ValueError, "there are no parameters", torch.nn.ReLU())
    refused(ValueError, "a group has no parameters", [{"params": []}])
    refused(TypeError, "type \\[parameter\\]", torch.nn.Parameter(torch.ones(2)))
    refused(TypeError, "'a'.*complex64", [("a", torch.zeros(2, dtype=torch.complex64, requires_grad=True))])
    refused(TypeError, "int64", [torch.zeros(2, dtype=torch.int64)])
    refused(NotImplementedError, "'a'.*is on meta; only CPUs and NVIDIA GPUs are supported", [("a", torch.zeros(2, device="meta", requires_grad=True))])
    refused(ValueError, "put them on one device", [torch.zeros(2, requires_grad=True), torch.zeros(2, device="meta", requires_grad=True)])
    refused(ValueError, r"train parameter.contiguous\(\)", [torch.zeros(4, 4)[:, :2].requires_grad_()])
    refused(TypeError, "sparse", [torch.eye(3).to_sparse().requires_grad_()])
    refused(ValueError, "run the model once", torch.nn.LazyLinear(3))
    refused(TypeError, "set", {torch.nn.Parameter(torch.ones(2))} and [{"params": {torch.nn.Parameter(torch.ones(2))}}])
    refused(TypeError, "no tensor but str", ["weight"])
    refused(ValueError, "non-leaf", [torch.nn.Parameter(torch.ones(2)) * 2])


def test_gradients_that_cannot_be_used():
    embedding = torch.nn.Embedding(5, 3, sparse=True)
    optimizer = untuned.PolyakAdam(embedding, total_steps=5)
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match="the gradient of parameter 'weight' is sparse; make the embedding with sparse=False"):
        optimizer.step()
    assert optimizer.steps == 0


def test_memory_that_is_shared_or_changed():
    base = torch.zeros(8)
    pair = [base[:6].requires_grad_(), base[2:].requires_grad_()]
    optimizer = untuned.Prodigy([("a", pair[0]), ("b", pair[1])])
    for p in pair:
        p.grad = torch.ones(6)
    with pytest.raises(RuntimeError, match="parameter 'b' shares memory"):
        optimizer.step()
    # One gradient for two parameters is fine: nothing writes to it.
    pair = [torch.nn.Parameter(torch.ones(6)) for _ in range(2)]
    optimizer = untuned.Prodigy(pair)
    pair[0].grad = pair[1].grad = torch.ones(6)
    optimizer.step()

    model = network()
    optimizer = untuned.PolyakAdam(model, total_steps=9)
    train(model, optimizer, 1)
    state = optimizer.state[model.out.weight]
    for wrong in (torch.zeros(2), state["m"].double(), state["m"].t(), state["v"], model.out.weight.detach(), "m"):
        right, state["m"] = state["m"], wrong
        with pytest.raises(RuntimeError, match="out.weight"):
            train(model, optimizer, 1)
        state["m"] = right
    del state["m"]
    with pytest.raises(RuntimeError, match="'out.weight' has no 'm'"):
        train(model, optimizer, 1)
    state["m"] = right.clone()
    train(model, optimizer, 1)
    model.double()
    with pytest.raises(RuntimeError, match="Make the optimizer after you change the model"):
        train(model, optimizer, 1)


def test_parameters_without_gradient_are_left_alone_and_named_once():
    model = network()
    optimizer = untuned.PolyakAdam(model, total_steps=20)
    before = model.out.bias.detach().clone()
    with pytest.warns(UserWarning, match="no gradient, so not changed: parameter 'out.bias' .shown once.") as caught:
        for batch in batches(4):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            model.out.bias.grad = None
            optimizer._seen.marks = None
            optimizer._options["warn_clipping"] = False
            optimizer.step()
    assert len(caught) == 1 and torch.equal(model.out.bias, before)
    assert not optimizer.state[model.out.bias]["m"].any()
    train(model, optimizer, 1)
    assert not torch.equal(model.out.bias, before)


def test_rates():
    model = network()
    with pytest.warns(UserWarning, match="lr=5e-05 multiplies the rate that PolyakAdam finds"):
        untuned.PolyakAdam(model, total_steps=5, lr=5e-5)
    optimizer = untuned.AdamW(model, lr=0.01)
    assert optimizer.method == "adamw:lr=0.01" and optimizer.param_groups[0]["lr"] == 0.01
    assert untuned.optimizer("adamw:lr=0.01", model).param_groups[0]["lr"] == 0.01
    assert untuned.Optimizer(model, "adamw", lr=0.01).method == "adamw:lr=0.01"
    train(model, optimizer, 1)
    assert optimizer.rate == pytest.approx(0.01) and optimizer.param_groups[0]["d"] == pytest.approx(1.0)
    optimizer.param_groups[0]["lr"] = 0.005
    train(model, optimizer, 1)
    assert optimizer.rate == pytest.approx(0.005)
    optimizer.param_groups[0]["lr"] = float("nan")
    with pytest.raises(ValueError, match="lr=nan must be finite"):
        train(model, optimizer, 1)
    for lr in (-1, float("inf")):
        with pytest.raises(ValueError, match="lr"):
            untuned.PolyakAdam(model, total_steps=5, lr=lr)
    with pytest.raises(TypeError, match="lr='a' must be a number"):
        untuned.PolyakAdam(model, total_steps=5, lr="a")


def decayed(optimizer, model):
    """The names of the parameters that decay: the loss is such that nothing else moves."""
    before = bits(model)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step(1.0)
    return {name for name, value in bits(model).items() if not torch.equal(value, before[name])}


def test_weight_decay():
    def model():
        made = network()
        torch.nn.init.ones_(made.out.bias)
        return made

    def names(*args, method=untuned.AdamW, **options):
        one = args[0] if args else model()
        groups = options.pop("groups", None)
        optimizer = method(groups(one) if groups else one, **options)
        return decayed(optimizer, one)

    matrices = {"embedding.weight", "hidden.weight", "out.weight"}
    assert names() == matrices, "AdamW's own decay, of matrices only"
    assert names(weight_decay=0.0) == set()
    assert names(no_decay=["embedding"]) == matrices - {"embedding.weight"}
    assert names(no_decay="*.weight") == set()
    assert names(no_decay=lambda name, p: p.shape[0] == 9) == matrices - {"hidden.weight"}
    both = lambda m: [{"params": m.out.parameters(), "weight_decay": 0.1}, {"params": m.hidden.parameters()}]
    assert names(groups=both) == {"out.weight", "out.bias", "hidden.weight"}, "a group's own decay is of all that is in it"
    with pytest.raises(ValueError, match="no parameter is called 'emmbedding'; there are embedding.weight"):
        names(no_decay=["emmbedding"])
    with pytest.raises(ValueError, match="model.named_parameters"):
        names(groups=lambda m: list(m.parameters()), no_decay=["out"])
    with pytest.raises(ValueError, match="weight_decay=-1"):
        names(weight_decay=-1)


def test_different_decays():
    model = network()
    start = model.out.weight.detach().clone(), model.hidden.weight.detach().clone()
    groups = [
        {"params": [model.out.weight], "weight_decay": 0.1},
        {"params": [model.hidden.weight], "weight_decay": 0.2},
    ]
    optimizer = untuned.AdamW(groups, lr=0.5)
    for p in (model.out.weight, model.hidden.weight):
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert torch.allclose(model.out.weight, start[0] * 0.95)
    assert torch.allclose(model.hidden.weight, start[1] * 0.9)
    momo = untuned.Momo(groups)
    with pytest.raises(ValueError, match=r"Momo takes one weight_decay .* \[0.1, 0.2\]"):
        momo.step(1.0)
    groups[1]["weight_decay"] = 0.0
    untuned.Momo(groups).step(1.0)


def test_specs():
    model = network()
    with pytest.raises(ValueError, match="did you mean `prodigy`"):
        untuned.optimizer("prodogy", model)
    with pytest.raises(ValueError, match="has no parameter `d1`"):
        untuned.optimizer("prodigy:d1=3", model)
    with pytest.raises(TypeError, match="untuned.Prodigy: .*'d1'"):
        untuned.Prodigy(model, d1=3)
    with pytest.raises(ValueError, match="beta1=2.0 does not work"):
        untuned.Prodigy(model, beta1=2)
    with pytest.raises(ValueError, match="beta1=a does not work"):
        untuned.Prodigy(model, beta1="a")
    with pytest.raises(ValueError, match="both give"):
        untuned.optimizer("prodigy:d0=1e-5", model, d0=1e-4)
    with pytest.raises(TypeError, match="untuned.GD: missing a required argument: 'lr'"):
        untuned.GD(model)
    with pytest.raises(ValueError, match="write \"uniform\""):
        untuned.DoG(model, averaging="mean")
    with pytest.raises(AttributeError, match="Prodogy"):
        untuned.Prodogy


def test_the_warning_of_a_method():
    x = torch.nn.Parameter(torch.ones(3))
    optimizer = untuned.Prodigy([x], d0=1e-6)
    with pytest.warns(UserWarning, match="the estimate of the distance is still d0"):
        for step in range(110):
            x.grad = torch.full((3,), float((-1) ** step))
            optimizer.step()


def test_a_module_two_times_and_tied_weights():
    tied = torch.nn.ModuleList([torch.nn.Linear(3, 3, bias=False) for _ in range(2)])
    tied[1].weight = tied[0].weight
    optimizer = untuned.PolyakAdam(tied, total_steps=5)
    assert len(optimizer.param_groups[0]["params"]) == 1
    tied[1](tied[0](torch.ones(2, 3))).square().sum().backward()
    optimizer.step()


def test_empty_tensors_and_scalars():
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in [(0,), (0, 4), (), (2, 1)]]
    optimizer = untuned.PolyakAdam(parameters, total_steps=5)
    sum(p.sum() for p in parameters).backward()
    optimizer.step(1.0)
    assert parameters[2].item() != 0


def test_double_backward():
    x = torch.nn.Parameter(torch.ones(3))
    optimizer = untuned.Prodigy([x])
    loss = x.square().sum()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss.backward(create_graph=True)
    with pytest.raises(RuntimeError, match=r"parameter 0 of group 0 .* has a graph .*p.grad = p.grad.detach"):
        optimizer.step()
    x.grad = x.grad.detach()
    optimizer.step()
    assert optimizer.steps == 1 and x.requires_grad and x.is_leaf and x.grad_fn is None


@pytest.mark.parametrize("name", ALL)
def test_signatures(name):
    method = next(m for m in untuned.methods() if m.name == name)
    cls = getattr(untuned, method.class_name)
    assert cls.__module__ == "untuned" and issubclass(cls, torch.optim.Optimizer)
    names = list(inspect.signature(cls).parameters)
    assert names[:2] == ["params", "total_steps"]
    assert {p.name for p in method.parameters} | {"lr", "weight_decay", "no_decay"} <= set(names)
    assert method.formula in cls.__doc__ and method.reference in cls.__doc__
