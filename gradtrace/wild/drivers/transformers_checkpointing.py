# /// script
# dependencies = ["transformers", "accelerate"]
# ///
"""Transformers' Trainer with gradient checkpointing, in both of PyTorch's ways: a tiny BERT."""

import torch
import trial
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count: int = 64, length: int = 24):
        self.tokens = torch.randint(0, 80, (count, length))
        self.labels = (self.tokens < 40).sum(1).gt(length // 2).long()

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


trial.begin()
config = BertConfig(
    vocab_size=80,
    hidden_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=96,
    num_labels=2,
)
models = []
with trial.training():
    for reentrant in (False, True):
        model = BertForSequenceClassification(config)
        models.append(model)
        options = TrainingArguments(
            output_dir="out",
            max_steps=25,
            per_device_train_batch_size=8,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": reentrant},
            logging_steps=5,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(model=model, args=options, train_dataset=Sentences())
        trainer.remove_callback(PrinterCallback)  # it prints times
        trainer.train()
        for entry in trainer.state.log_history:
            if "loss" in entry:
                print(entry["step"], entry["loss"], entry["grad_norm"])
trial.end(*models)
