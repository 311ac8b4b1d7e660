# /// script
# dependencies = ["peft", "transformers"]
# ///
"""PEFT: a frozen tiny Llama with LoRA, trained, then merged."""

import torch
import trial
from peft import LoraConfig, TaskType, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

trial.begin()
config = LlamaConfig(
    vocab_size=96,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
lora = LoraConfig(
    task_type=TaskType.CAUSAL_LM,
    r=4,
    lora_alpha=8,
    lora_dropout=0.1,
    target_modules=["q_proj", "v_proj"],
)
model = get_peft_model(LlamaForCausalLM(config), lora)
model.print_trainable_parameters()
model.enable_input_require_grads()
model.gradient_checkpointing_enable()
parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(parameters, lr=3e-3)
model.train()
with trial.training():
    for step in range(30):
        tokens = (torch.randint(0, 96, (8, 1)) + 7 * torch.arange(32)) % 96
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(step, loss.item())
trial.end(model.merge_and_unload())
