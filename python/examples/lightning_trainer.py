"""Lightning's Trainer, with gradients that are accumulated."""

import logging
import tempfile
import warnings

import lightning as L
import torch

import untuned

warnings.filterwarnings("ignore", module="lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(0)
x = torch.randn(1024, 10)
y = (x[:, 0] * x[:, 1] > 0).long()
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=32, shuffle=True)


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.GELU(), torch.nn.Linear(64, 2))
        self.losses = []

    def training_step(self, batch):
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self.model(inputs), labels)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return untuned.PolyakAdam(self.model, total_steps=int(self.trainer.estimated_stepping_batches))


module = Classifier()
with tempfile.TemporaryDirectory() as folder:
    trainer = L.Trainer(
        max_epochs=15,
        accumulate_grad_batches=2,
        gradient_clip_val=None,  # the default: no clipping
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(module, data)

first, last = module.losses[0], sum(module.losses[-32:]) / 32
assert module.optimizers().optimizer.steps == 15 * len(data) // 2
assert last < 0.5 * first
print(f"the loss fell from {first:.3f} to {last:.3f}")
