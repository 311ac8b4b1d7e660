# /// script
# dependencies = ["transformers", "accelerate"]
# ///
"""Transformers' Trainer: a tiny GPT-2, made from a configuration."""

import torch
import trial
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count: int = 64, length: int = 32):
        start = torch.randint(0, 90, (count, 1))
        self.tokens = (start + 3 * torch.arange(length)) % 90

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


trial.begin()
config = GPT2Config(
    vocab_size=90, n_positions=32, n_embd=64, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0
)
model = GPT2LMHeadModel(config)
options = TrainingArguments(
    output_dir="out",
    max_steps=40,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    learning_rate=1e-3,
    logging_steps=5,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(model=model, args=options, train_dataset=Sentences())
trainer.remove_callback(PrinterCallback)  # it prints times
with trial.training():
    trainer.train()
for entry in trainer.state.log_history:
    if "loss" in entry:
        print(entry["step"], entry["loss"], entry["grad_norm"])
trial.end(model)
