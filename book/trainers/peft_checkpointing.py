# /// script
# dependencies = ["transformers", "peft"]
# ///
"""transformers and peft: gradient checkpointing of a frozen model with adapters."""

import warnings

import peft
import torch
import transformers

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()


def adapted():
    """A tiny language model, frozen, with an adapter in each attention layer."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    lora = peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=2, init_lora_weights=False)
    return peft.get_peft_model(transformers.LlamaForCausalLM(config), lora).train()


def gradients(model):
    """The adapters' gradients, or how `backward()` ends."""
    tokens = torch.arange(16).reshape(2, 8)
    loss = model(input_ids=tokens, labels=tokens).loss
    try:
        loss.backward()
    except RuntimeError as error:
        return str(error)
    return [p.grad for p in model.parameters() if p.requires_grad]


right = gradients(adapted())
for name, reentrant, inputs in (
    ("use_reentrant=True, as transformers 5 sets it up", True, None),
    ("use_reentrant=True, disable_input_require_grads()", True, False),
    ("use_reentrant=True, enable_input_require_grads()", True, True),
    ("use_reentrant=False, disable_input_require_grads()", False, False),
):
    model = adapted()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    if inputs is not None:
        model.disable_input_require_grads()
    if inputs:
        model.enable_input_require_grads()
    found = gradients(model)
    if not isinstance(found, str):
        same = all(
            a is not None and torch.allclose(a, b) for a, b in zip(found, right, strict=True)
        )
        found = f"runs, the adapters' gradients are right: {same}"
    print(f"{name:52}{found}")
versions = f"transformers {transformers.__version__}, peft {peft.__version__}"
print(f"\n{versions}, torch {torch.__version__.partition('+')[0]}")
