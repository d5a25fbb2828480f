"""Saving, loading, copying: a run goes on to the same bits."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from conftest import ALL, DEVICE, batches, bits, loss_of, network, same_bits, spec, train

import untuned


def make(name, model, **options):
    return untuned.optimizer(spec(name), model, total_steps=40, **options)


def through_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ALL)
def test_state_dict(name, dtype):
    model = network(dtype)
    optimizer = make(name, model)
    train(model, optimizer, 6)
    saved = through_file(optimizer.state_dict()), through_file(model.state_dict())
    train(model, optimizer, 6, seed=1)
    other = network(dtype, seed=5)
    again = make(name, other)
    other.load_state_dict(saved[1])
    again.load_state_dict(saved[0])
    assert again.steps == 6
    for p, state in again.state.items():
        assert all(v.dtype in (torch.float32, torch.float64) for v in state.values())
    train(other, again, 6, seed=1)
    assert same_bits(bits(model), bits(other))
    assert optimizer.rate == again.rate


def test_what_is_saved_does_not_change_with_the_run():
    model = network()
    optimizer = make("polyak-adam", model)
    train(model, optimizer, 3)
    saved = optimizer.state_dict()
    kept = copy.deepcopy(saved["param_groups"])
    train(model, optimizer, 3)
    assert torch.equal(saved["param_groups"][0]["untuned"], kept[0]["untuned"])
    other = make("polyak-adam", network())
    other.load_state_dict(saved)
    m = other.state[other.param_groups[0]["params"][0]]["m"]
    assert m is not saved["state"][0]["m"] and m.data_ptr() != saved["state"][0]["m"].data_ptr()


def test_the_numbers_have_a_fixed_size():
    model = network()
    optimizer = make("polyak-adam", model)
    sizes = {optimizer.state_dict()["param_groups"][0]["untuned"].numel()}
    for _ in range(4):
        train(model, optimizer, 5)
        sizes.add(optimizer.state_dict()["param_groups"][0]["untuned"].numel())
    assert sizes == {4096}


@pytest.mark.parametrize("name", ["polyak-adam", "prodigy", "adaptive-polyak", "gd"])
@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_copies(name, way):
    model = network()
    optimizer = make(name, model)
    train(model, optimizer, 5)
    pair = (model, optimizer)
    other, again = copy.deepcopy(pair) if way == "deepcopy" else pickle.loads(pickle.dumps(pair))
    assert type(again) is type(optimizer) and again.steps == 5
    assert again.param_groups[0]["params"][0] is next(other.parameters())
    train(model, optimizer, 5, seed=1)
    train(other, again, 5, seed=1)
    assert same_bits(bits(model), bits(other))
    again.add_param_group({"params": [torch.nn.Parameter(torch.ones(2, device=DEVICE))]})


def test_a_wrong_state_changes_nothing():
    model = network()
    optimizer = make("polyak-adam", model)
    train(model, optimizer, 4)
    twin, other = copy.deepcopy((model, optimizer))
    foreign = torch.optim.AdamW(network().parameters()).state_dict()
    with pytest.raises(ValueError, match="not the state of an untuned optimizer"):
        optimizer.load_state_dict(foreign)
    with pytest.raises(ValueError, match="method='prodigy', and this optimizer has method='polyak-adam'"):
        optimizer.load_state_dict(make("prodigy", network()).state_dict())
    longer = untuned.PolyakAdam(network(), total_steps=77)
    with pytest.raises(ValueError, match="make the optimizer with total_steps=77"):
        optimizer.load_state_dict(longer.state_dict())
    with pytest.raises(ValueError, match="different number of parameter groups|doesn't match"):
        optimizer.load_state_dict(untuned.PolyakAdam(torch.nn.Linear(2, 2), 40).state_dict())
    train(model, optimizer, 4, seed=2)
    train(twin, other, 4, seed=2)
    assert same_bits(bits(model), bits(twin))


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("name", ["polyak-adam", "prodigy", "dog", "gd", "schedule-free-adamw"])
def test_distributed_checkpoint(name, flatten, tmp_path):
    import warnings

    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    options = StateDictOptions(flatten_optimizer_state_dict=flatten)
    model = network()
    groups = [{"params": list(model.embedding.parameters())}, {"params": [*model.hidden.parameters(), *model.norm.parameters(), *model.out.parameters()]}]
    optimizer = make(name, groups)
    train(model, optimizer, 5)
    optimizer.zero_grad()
    steps = optimizer.steps
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(
            {"model": model.state_dict(), "optimizer": get_optimizer_state_dict(model, optimizer, options=options)},
            checkpoint_id=tmp_path,
        )
        assert optimizer.steps == steps, "asking for the state counts nothing"
        other = network(seed=3)
        groups = [{"params": list(other.embedding.parameters())}, {"params": [*other.hidden.parameters(), *other.norm.parameters(), *other.out.parameters()]}]
        again = make(name, groups)
        state = {"model": other.state_dict(), "optimizer": get_optimizer_state_dict(other, again, options=options)}
        assert again.steps == 0
        dcp.load(state, checkpoint_id=tmp_path)
        other.load_state_dict(state["model"])
        set_optimizer_state_dict(other, again, state["optimizer"], options=options)
    assert again.steps == 5
    train(model, optimizer, 5, seed=1)
    train(other, again, 5, seed=1)
    assert same_bits(bits(model), bits(other))


def test_evaluation():
    model = network()
    optimizer = untuned.ScheduleFreeAdamW(model)
    with optimizer.evaluation():
        pass
    train(model, optimizer, 5)
    before = bits(model)
    with optimizer.evaluation() as same:
        assert same is optimizer and not same_bits(bits(model), before)
        with pytest.raises(RuntimeError, match="inside of evaluation"):
            optimizer.step()
        with pytest.raises(RuntimeError, match="inside of evaluation"):
            with optimizer.evaluation():
                pass
    assert same_bits(bits(model), before)
    with pytest.raises(KeyError):
        with optimizer.evaluation():
            raise KeyError
    assert same_bits(bits(model), before)
    train(model, optimizer, 1)
    plain = untuned.PolyakAdam(model, total_steps=5)
    with plain.evaluation():
        pass


def test_evaluation_of_16_bits():
    model = network(torch.bfloat16)
    optimizer = untuned.ScheduleFreeAdamW(model)
    train(model, optimizer, 5)
    before = bits(model)
    with optimizer.evaluation():
        assert not same_bits(bits(model), before)
    assert same_bits(bits(model), before)
