"""What an answer did on its way to its values: how often a module ran, what its graphs held.

A right value can be had without the work that a question asks for.  What is noted here lies in the
learner's own process, so it says what an ordinary answer did, and is no proof.
"""

from weakref import WeakSet

from torch.autograd.graph import saved_tensors_hooks

from gradtrace._torch import current_node  # where the names are that PyTorch does not publish


def rows_of_runs(module):
    """A list that grows with each run of a module, by the number of rows that go in."""
    rows = []
    module.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    return rows


def is_in_backward():
    """Whether this is called by a backward that runs."""
    return current_node() is not None


class Held:
    """What operations save for backward while this is entered, for as long as a graph holds it.

    What is saved under a checkpoint, or under other hooks of an answer's own, is not seen.
    """

    def __init__(self, at_each=lambda: None):
        self._at_each = at_each
        self._saved = WeakSet()
        self._hooks = saved_tensors_hooks(self._pack, lambda saved: saved.tensor)

    def _pack(self, tensor):
        saved = _Saved(tensor)
        self._saved.add(saved)
        self._at_each()
        return saved

    def __enter__(self):
        self._hooks.__enter__()
        return self

    def __exit__(self, *error):
        self._hooks.__exit__(*error)

    def tensors(self, besides=()):
        """The tensors that are held now: one for each memory, none for that of ``besides``."""
        known = set(map(_memory, besides))
        held = {_memory(saved.tensor): saved.tensor for saved in self._saved}
        return [tensor for memory, tensor in held.items() if memory not in known]

    def rows(self, width):
        """How many rows of data are held now: of what is so wide, and no column."""
        data = [t.numel() // width for t in self.tensors() if t.dim() == 2 and width in t.shape]
        return sum(rows for rows in data if rows > 1)


class _Saved:
    def __init__(self, tensor):
        self.tensor = tensor


def _memory(tensor):
    return tensor.untyped_storage().data_ptr()
