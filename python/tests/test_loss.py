"""untuned reads the loss in backward(), whatever a loop or a trainer does with it."""

from __future__ import annotations

import warnings

import pytest
import torch
from conftest import DEVICE, batches, bits, loss_of, network, same_bits

import untuned

STEPS = 12
#: It is the one that notices a wrong pair of loss and gradient at once.
METHOD = "polyak-bound:lower_bound=0"


def run(body, method: str = METHOD, **options):
    """The bits after some steps, each made by `body(model, optimizer, batch)`."""
    model = network()
    optimizer = untuned.optimizer(method, model, total_steps=STEPS, **options)
    for batch in batches(STEPS):
        body(model, optimizer, batch)
    return bits(model)


def plain(model, optimizer, batch):
    optimizer.zero_grad()
    loss_of(model, batch).backward()
    optimizer.step()


def test_every_way_to_give_the_loss():
    def positional(model, optimizer, batch):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step(loss)

    def keyword(model, optimizer, batch):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step(loss=loss.item())

    def closure(model, optimizer, batch):
        def compute():
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        assert optimizer.step(compute) is not None

    def by_function(model, optimizer, batch):
        optimizer.zero_grad()
        torch.autograd.backward([loss_of(model, batch)])
        optimizer.step()

    def of_module(model, optimizer, batch):
        model.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()

    def zeros(model, optimizer, batch):
        model.zero_grad(set_to_none=False)
        loss_of(model, batch).backward()
        optimizer.step()

    def autograd_grad(model, optimizer, batch):
        loss = loss_of(model, batch)
        parameters = [p for p in model.parameters() if p.requires_grad]
        for p, g in zip(parameters, torch.autograd.grad(loss, parameters)):
            p.grad = g
        optimizer.step(loss)

    want = run(plain)
    for body in (positional, keyword, closure, by_function, of_module, zeros, autograd_grad):
        assert same_bits(run(body), want), body.__name__


@pytest.mark.parametrize("factor", [4.0, 0.25])
def test_a_constant_factor_changes_nothing(factor):
    def scaled(model, optimizer, batch):
        optimizer.zero_grad()
        (factor * loss_of(model, batch)).backward()
        optimizer.step()

    def by_gradient(model, optimizer, batch):
        optimizer.zero_grad()
        loss_of(model, batch).backward(torch.tensor(factor, device=DEVICE))
        optimizer.step()

    want = run(plain)
    for body in (scaled, by_gradient):
        got = run(body)
        assert all(torch.allclose(got[n], want[n], rtol=1e-5, atol=1e-6) for n in want), body.__name__


def test_accumulation_with_mean_and_sum():
    def halves(batch):
        tokens, labels = batch
        return [(tokens[:4], labels[:4]), (tokens[4:], labels[4:])]

    def mean(model, optimizer, batch):
        optimizer.zero_grad()
        for half in halves(batch):
            (loss_of(model, half) / 2).backward()
        optimizer.step()

    def total(model, optimizer, batch):
        optimizer.zero_grad()
        for half in halves(batch):
            loss_of(model, half).backward()
        optimizer.step()

    def together(model, optimizer, batch):
        optimizer.zero_grad()
        torch.autograd.backward([loss_of(model, half) for half in halves(batch)])
        optimizer.step()

    def closure_of_the_last(model, optimizer, batch):
        """As Lightning does it: the closure computes only the last part."""
        first, last = halves(batch)
        optimizer.zero_grad()
        (loss_of(model, first) / 2).backward()

        def compute():
            loss = loss_of(model, last) / 2
            loss.backward()
            return loss

        optimizer.step(compute)

    want = run(plain)
    for body in (mean, total, together, closure_of_the_last):
        got = run(body)
        assert all(torch.allclose(got[n], want[n], rtol=1e-4, atol=1e-5) for n in want), body.__name__


def test_two_optimizers_as_in_a_gan():
    """The loss of the generator goes through the discriminator, whose gradients are thrown away."""

    def seen(separate: bool):
        torch.manual_seed(0)
        make = torch.nn.Linear(3, 4)
        judge = torch.nn.Linear(4, 1)
        optimizers = [untuned.optimizer(METHOD, m, total_steps=50) for m in (make, judge)]
        noise, real = torch.randn(20, 6, 3), torch.randn(20, 6, 4)
        for step in range(20):
            judge.zero_grad()
            fake = make(noise[step])
            losses = [judge(real[step]).square().mean(), (judge(fake.detach()) - 1).square().mean()]
            for loss in losses:
                loss.backward()
            optimizers[1].step(*([sum(losses).item()] if separate else []))
            make.zero_grad()
            loss = judge(fake).square().mean()
            loss.backward()
            optimizers[0].step(*([loss] if separate else []))
        return bits(torch.nn.ModuleList([make, judge]))

    want, got = seen(True), seen(False)
    assert all(torch.allclose(got[n], want[n], rtol=1e-4, atol=1e-6) for n in want)


def test_inputs_that_are_not_ours_and_checkpointing():
    from torch.utils.checkpoint import checkpoint

    def penalty(model, optimizer, batch):
        """The gradient of the input is somebody else's business."""
        optimizer.zero_grad()
        x = torch.ones(3, requires_grad=True)
        (x * 1000).sum().backward(inputs=[x])
        loss_of(model, batch).backward()
        optimizer.step()

    assert same_bits(run(penalty), run(plain))

    for reentrant in (True, False):

        def checkpointed(model, optimizer, batch):
            optimizer.zero_grad()
            tokens, labels = batch
            x = model.embedding(tokens)
            x = checkpoint(lambda x: model.norm(torch.tanh(model.hidden(x + model.frozen(x)))), x, use_reentrant=reentrant)
            torch.nn.functional.cross_entropy(model.out(x).mean(1), labels).backward()
            optimizer.step()

        got, want = run(checkpointed), run(plain)
        assert all(torch.allclose(got[n], want[n], rtol=1e-5, atol=1e-6) for n in want)


def test_a_missing_loss_is_an_error_that_helps():
    model = network()
    optimizer = untuned.PolyakAdam(model, total_steps=10)
    with pytest.raises(RuntimeError, match="no parameter has a gradient: call loss.backward"):
        optimizer.step()
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.ones_like(p)
    ways = r"call loss.backward\(\), or type optimizer.step\(loss\), or optimizer.step\(closure\)"
    with pytest.raises(RuntimeError, match=ways):
        optimizer.step()
    with pytest.raises(ValueError, match=r"shape \(3,\); a single number is needed"):
        optimizer.step(torch.ones(3))
    with pytest.raises(TypeError, match="it is dict"):
        optimizer.step({})
    optimizer.zero_grad()
    logits = model(batches(1)[0][0])
    logits.backward(torch.ones_like(logits))
    with pytest.raises(RuntimeError, match=r"shape \(8, 3\), which is no loss: type optimizer.step\(loss\)"):
        optimizer.step()
    assert optimizer.steps == 0
    optimizer.step(logits.sum())
    assert optimizer.steps == 1
    with pytest.raises(TypeError, match="twice"):
        optimizer.step(logits.sum(), loss=1.0)
    # A method that does not look at the loss needs none.
    free = untuned.Prodigy(model)
    free.step()
    assert free.steps == 1


def test_a_loss_that_changes_afterwards():
    def running(model, optimizer, batch):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        loss.detach().mul_(100)
        optimizer.step()

    assert same_bits(run(running), run(plain))


def test_clipping_is_noticed_once_and_can_be_silenced():
    def clipped(model, optimizer, batch):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    with pytest.warns(UserWarning, match="max_grad_norm=0; Lightning: gradient_clip_val=None") as caught:
        run(clipped, method="polyak-adam")
    assert len(caught) == 1
    run(clipped, method="polyak-adam", warn_clipping=False)
    run(clipped, method="prodigy")


@pytest.mark.parametrize("unscale", [False, True])
def test_grad_scaler(unscale):
    scalers = []

    def scaled(model, optimizer, batch):
        if not scalers:
            scalers.append(torch.amp.GradScaler(DEVICE.type, init_scale=1024.0, growth_interval=4))
        (scaler,) = scalers
        optimizer.zero_grad()
        scaler.scale(loss_of(model, batch)).backward()
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    def disabled(model, optimizer, batch):
        scaler = torch.amp.GradScaler(DEVICE.type, enabled=False)
        optimizer.zero_grad()
        scaler.scale(loss_of(model, batch)).backward()
        scaler.step(optimizer)

    for method in ("polyak-adam", METHOD, "adamw"):
        scalers.clear()
        want, got = run(plain, method), run(scaled, method)
        assert all(torch.allclose(got[n], want[n], rtol=1e-5, atol=1e-6) for n in want), method
        assert same_bits(run(disabled, method), want)


def test_grad_scaler_with_an_infinite_gradient_and_a_changed_loss():
    model = network()
    optimizer = untuned.PolyakAdam(model, total_steps=10)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=8.0)
    before, (batch,) = bits(model), batches(1)
    scaler.scale(loss_of(model, batch)).backward()
    model.out.weight.grad[0, 0] = float("inf")
    with pytest.warns(UserWarning, match="changed"):
        scaler.step(optimizer)
    scaler.update()
    assert same_bits(bits(model), before) and scaler.get_scale() == 4.0 and optimizer.steps == 1
    optimizer.zero_grad()
    loss = scaler.scale(loss_of(model, batch)) * 0.5
    loss.backward()
    with pytest.raises(RuntimeError, match=r"scaler.step\(optimizer, loss=loss\)"):
        scaler.step(optimizer)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=8.0)
    optimizer.zero_grad()
    loss = loss_of(model, batch)
    scaler.scale(loss).backward()
    scaler.step(optimizer, loss=loss)
    assert optimizer.steps == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    def cast(model, optimizer, batch):
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, dtype=dtype):
            loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()

    want, got = run(plain, "polyak-adam"), run(cast, "polyak-adam")
    model = network()
    start = loss_of(model, batches(1)[0])
    losses = []
    for state in (want, got):
        model.load_state_dict(state)
        losses.append(loss_of(model, batches(1)[0]).item())
    assert losses[0] < start and losses[1] == pytest.approx(losses[0], rel=0.05)


def test_an_optimizer_that_is_gone_listens_no_more():
    import gc

    from untuned import _loss

    optimizer = untuned.Prodigy(network())
    count = len(_loss.listeners)
    assert optimizer in _loss.listeners
    del optimizer
    gc.collect()
    assert len(_loss.listeners) < count


def test_schedulers():
    model = network()
    optimizer = untuned.PolyakAdam(model, total_steps=20)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 5))
    before = bits(model)
    for step, batch in enumerate(batches(10)):
        plain(model, optimizer, batch)
        group = optimizer.param_groups[0]
        assert group["lr"] == min(1.0, step / 5)
        assert optimizer.rate == pytest.approx(group["d"] * group["lr"])
        if step == 0:
            assert optimizer.rate == 0.0 and optimizer.steps == 1
            moved = bits(model)
            assert all(torch.equal(moved[n], before[n]) for n in before)
        schedule.step()
    assert optimizer.rate > 0


def test_hooks_and_profiler_names():
    model = network()
    optimizer = untuned.PolyakAdam(model, total_steps=20)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    plain(model, optimizer, batches(1)[0])
    assert calls == ["before", "after"]


def test_autograd_sees_that_a_step_changed_the_parameters():
    model = torch.nn.Linear(3, 3)
    optimizer = untuned.Prodigy(model)
    x = torch.randn(2, 3, requires_grad=True)
    late = model(x).square().sum()
    model(x).square().sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        late.backward()


def test_torch_compile_around_the_step():
    def compiled():
        model = network()
        optimizer = untuned.optimizer(METHOD, model, total_steps=STEPS)

        @torch.compile(backend="eager")
        def step(batch):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for batch in batches(3):
                step(batch)
        assert optimizer.steps == 3
        return bits(model)

    model = network()
    optimizer = untuned.optimizer(METHOD, model, total_steps=STEPS)
    for batch in batches(3):
        plain(model, optimizer, batch)
    got, want = compiled(), bits(model)
    assert all(torch.allclose(got[n], want[n], rtol=1e-5, atol=1e-6) for n in want)


def test_what_is_printed():
    optimizer = untuned.PolyakAdam(network(), total_steps=20)
    assert repr(optimizer).startswith("PolyakAdam (polyak-adam, total_steps=20)\n  9 parameters: {'lr': 1.0")
