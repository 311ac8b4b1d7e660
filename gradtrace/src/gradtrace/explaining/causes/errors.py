"""PyTorch's error texts: the family of each, and its cause if the text decides it."""

from __future__ import annotations

import re

FAMILIES = {
    "freed": "A backward pass reached saved tensors that an earlier backward pass had freed.",
    "modified": "A tensor that an operation had saved for backward was changed in place.",
    "no_graph": "backward() was called on a tensor that has no graph.",
    "not_scalar": "backward() was called on a tensor of several elements, without gradient=.",
    "leaf_inplace": "A leaf that requires grad was changed in place.",
    "unused_input": "A gradient was requested for a tensor that the result was not computed from.",
    "unsupported": "PyTorch cannot differentiate this part of the program in this way.",
    "silent": "Nothing is raised, but a gradient is wrong or a graph grows.",
}

# Texts differ between versions of PyTorch: these match what they have had in common since 0.4.
# The third is the cause, where the text decides it.
PATTERNS = [
    (r"backward through the graph (a )?second time", "freed", None),
    (r"saved (intermediate|tensors|variables).* freed", "freed", None),
    (r"modified by an inplace operation", "modified", None),
    (r"detached in-place", "modified", None),
    (r"does not require grad and does not have a grad_fn", "no_graph", None),
    (r"[Ii]nference tensors? cannot be saved for backward", "no_graph", "no_grad_region"),
    (r"implicitly created only for scalar", "not_scalar", "not_scalar"),
    (r"leaf Variable that requires grad", "leaf_inplace", "leaf_inplace"),
    (r"not have been used in the graph", "unused_input", None),
    (r"One of the differentiated Tensors does not require grad", "unused_input", None),
    (r"marked ?with @once_differentiable", "unsupported", "once_differentiable"),
    (r"derivative for .* is not implemented", "unsupported", "double_backward_unsupported"),
    (r"[Dd]ouble backwards? is not supported", "unsupported", "double_backward_unsupported"),
    (r"not currently support double backward", "unsupported", "double_backward_compiled"),
    (r"cudnn RNN backward can only be called in train", "unsupported", "cudnn_rnn_eval"),
    (r"checkpoint(ing)? is (incompatible|not compatible) with", "unsupported",
     "checkpoint_reentrant"),
    (r"different metadata than during the forward|number of tensors was saved during the orig"
     r"|more tensors during recomputation", "unsupported", "checkpoint_differs"),
    (r"finished reduction in the prior iteration", "unsupported", "ddp_unused_parameter"),
    (r"mark a variable ready only once", "unsupported", "ddp_ready_twice"),
    (r"is a view and .*modified in-?place", "unsupported", "view_changed_inplace"),
    (r"donated buffer", "unsupported", "donated_buffers"),
    (r"support saved tensor hooks", "unsupported", "saved_tensor_hooks"),
    (r"Backward returned an? (incorrect number|invalid|gradient diff)|expected Variable or None",
     "unsupported", "function_returns_wrong_gradients"),
    (r"marked as dirty during the forward", "unsupported", "function_marks_dirty"),
    (r"returned nan values in its \d+th output", "unsupported", "nan_in_backward"),
]  # fmt: skip


def family_of(message: str) -> tuple[str | None, str | None]:
    """Return the family of an error's text, and its cause if the text decides it.

    >>> family_of("Trying to backward through the graph a second time")
    ('freed', None)
    """
    for pattern, family, cause in PATTERNS:
        if re.search(pattern, message):
            return family, cause
    return None, None
