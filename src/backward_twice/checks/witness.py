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

    def runs(_, given, named):
        [data] = (*given, *named.values())
        rows.append(len(data))

    module.register_forward_pre_hook(runs, with_kwargs=True)
    return rows


def is_in_backward():
    """Whether this is called by a backward that runs."""
    return current_node() is not None


def most_rows_held(width, run):
    """The most rows of data that graphs hold at once while ``run()`` runs: of so wide tensors.

    What is saved under a checkpoint, or other hooks of an answer's own, is not seen, and nothing
    from where ``torch.func`` is used, which refuses to be watched so and ends the run.
    """
    held, most = WeakSet(), 0

    def pack(tensor):
        nonlocal most
        saved = _Saved(tensor)
        held.add(saved)
        # Once for each memory.  A column is no data: weights may be one.
        data = {
            each.tensor.untyped_storage().data_ptr(): each.tensor.numel() // width
            for each in held
            if each.tensor.dim() == 2 and width in each.tensor.shape
        }
        most = max(most, sum(rows for rows in data.values() if rows > 1))
        return saved

    try:
        with saved_tensors_hooks(pack, lambda saved: saved.tensor):
            run()
    except RuntimeError as error:
        if "saved tensor hooks" not in str(error):
            raise
    return most


class _Saved:
    """A tensor for as long as a graph holds it."""

    def __init__(self, tensor):
        self.tensor = tensor
