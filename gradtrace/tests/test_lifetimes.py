"""A watch keeps nothing alive, and a graph of any depth is freed under it, at once."""

import gc
import subprocess
import sys
import textwrap
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from gradtrace import snapshot, watch

STRICT = pytest.mark.parametrize("strict", [False, True], ids=["watch", "strict"])
CHAIN = """
    import sys, threading, torch
    from gradtrace import snapshot, watch

    def chain(depth):
        result = torch.ones(1, requires_grad=True)
        for _ in range(depth):
            result = result * 1.0
        return result
"""


def run(program: str, *arguments: object) -> None:
    """Run a program that a stack overflow would end, with its error output if it fails."""
    source = textwrap.dedent(CHAIN) + textwrap.dedent(program)
    command = [sys.executable, "-W", "error", "-c", source, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"


@pytest.fixture
def collector_off():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@STRICT
def test_a_deep_graph_is_freed_in_the_main_thread(strict):
    program = """
        with watch(strict=sys.argv[1] == "True"):
            result = chain(150_000)
            result.backward()
            del result
            result = chain(20_000)  # freed without a backward pass
            del result
            at_exit = chain(10_000)
            at_exit.backward(retain_graph=True)
    """
    run(program, strict)


@STRICT
def test_a_deep_graph_is_freed_in_a_thread_with_a_small_stack(strict):
    program = """
        threading.stack_size(256 << 10)
        failed = []

        def train(results):
            with watch(strict=sys.argv[1] == "True"):
                result = chain(20_000)
                result.backward()
                results.append(result)

        def run(function, argument):
            threading.excepthook = failed.append
            thread = threading.Thread(target=function, args=(argument,))
            thread.start()
            thread.join()

        results = []
        run(train, results)
        run(list.clear, results)  # freed by another thread than the one that recorded it
        sys.exit(len(failed))
    """
    run(program, strict)


def test_a_deep_graph_is_freed_after_a_snapshot():
    program = """
        threading.stack_size(256 << 10)
        thread = threading.Thread(target=lambda: snapshot(chain(5_000)))
        thread.start()
        thread.join()
    """
    run(program)


@STRICT
def test_leaves_that_have_no_views_are_marked(strict):
    for leaf in (
        torch.ones(2, 3).to_mkldnn().requires_grad_(),
        torch.eye(3).to_sparse_csr().requires_grad_(),
        torch.eye(3).to_sparse().requires_grad_(),
    ):
        with watch(strict=strict) as watching:
            loss = leaf.to_dense().pow(2).sum()
            torch.autograd.grad(loss, leaf)
            with pytest.raises(RuntimeError) as context:
                torch.autograd.grad(loss, leaf)
        assert watching.broken is None
        assert "was already called on this loss" in context.value.__notes__[-1]


@STRICT
def test_a_graph_is_freed_at_once(strict, collector_off):
    with watch(strict=strict):
        first = torch.ones(3, requires_grad=True).exp()
        saved, result = weakref.ref(first), first
        for _ in range(100):
            result = result.exp()
        result.sum().backward(retain_graph=True)
        snapshot(result)
        del first, result
        assert saved() is None


@STRICT
@pytest.mark.parametrize("target", ["in Python", "in C++"])
def test_a_caught_error_keeps_no_tensors_alive(strict, target, collector_off):
    activations = []

    def attempt():
        activation = torch.ones(1000, requires_grad=True) * 2
        activations.append(weakref.ref(activation))
        if target == "in Python":
            torch.nn.functional.cross_entropy(activation.view(10, 100), torch.ones(3).long())
        torch.autograd.grad(activation.sum(), torch.ones(3))

    with watch(strict=strict):
        try:  # not pytest.raises, which keeps the exception
            attempt()
        except (RuntimeError, ValueError) as error:
            assert error.args
    assert activations[-1]() is None


@STRICT
def test_a_checkpoint_keeps_no_activation_after_backward(strict, collector_off):
    activations = []

    def block(x):
        hidden = x.cos().exp()
        activations.append(weakref.ref(hidden))
        return hidden.sin()

    with watch(strict=strict):
        for _ in range(2):
            x = torch.ones(10, requires_grad=True)
            checkpoint(block, x, use_reentrant=False).sum().backward()
    assert activations and all(activation() is None for activation in activations)


@STRICT
def test_an_operator_can_be_defined_again_after_an_error(strict, collector_off):
    def define():
        library = torch.library.Library("gradtrace_test", "FRAGMENT")
        library.define("double(Tensor a) -> Tensor")
        library.impl("double", lambda a: a.detach() * 2, "CPU")
        result = torch.ops.gradtrace_test.double.default(torch.ones(2, requires_grad=True))
        try:
            torch.autograd.grad(result, torch.ones(2), torch.ones(2))
        except RuntimeError as error:
            assert error.args
        delattr(torch.ops, "gradtrace_test")
        del library.m

    with watch(strict=strict):
        define()
        define()
