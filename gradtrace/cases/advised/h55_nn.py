import torch


def checkpoint(func, inputs, params, flag):
    if flag:
        args = tuple(inputs) + tuple(params)
        return CheckpointFunction.apply(func, len(inputs), *args)
    return func(*inputs)


class CheckpointFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run_function, length, *args):
        ctx.run_function = run_function
        ctx.length = length
        ctx.save_for_backward(*args)
        with torch.no_grad():
            output_tensors = ctx.run_function(*args[:length])
        return output_tensors

    @staticmethod
    def backward(ctx, *output_grads):
        input_tensors = [x.detach().requires_grad_(True) for x in ctx.saved_tensors[: ctx.length]]
        input_params = list(ctx.saved_tensors[ctx.length :])
        with torch.enable_grad():
            shallow_copies = [x.view_as(x) for x in input_tensors]
            output_tensors = ctx.run_function(*shallow_copies)
        input_grads = torch.autograd.grad(output_tensors, input_tensors + input_params,
                                          output_grads, allow_unused=True)
        return (None, None) + input_grads
