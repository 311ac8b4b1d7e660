"""The large models that pictures are measured on: programs of a few lines that go backward."""

import torch
from torch import nn


class Block(nn.Module):
    """Three convolutions and a shortcut around them."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.shortcut = nn.Identity()
        if inputs != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResidualNetwork(nn.Module):
    """Fifty layers: a stem, 16 blocks of three in four stages, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        inputs = 8
        for number, (depth, width) in enumerate(((3, 8), (4, 16), (6, 32), (3, 64)), 1):
            blocks = []
            for _ in range(depth):
                blocks.append(Block(inputs, width))
                inputs = 4 * width
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def transformer() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = nn.TransformerEncoder(layer, 12)
    out = model(torch.randn(2, 16, 64))
    loss = out.pow(2).mean()
    loss.backward()


def residual_network() -> None:
    torch.manual_seed(0)
    model = ResidualNetwork()
    scores = model(torch.randn(2, 3, 8, 8))
    loss = nn.functional.cross_entropy(scores, torch.tensor([1, 2]))
    loss.backward()


def recurrent_loop(steps: int = 200) -> None:
    torch.manual_seed(0)
    cell = nn.GRUCell(8, 8)
    h = torch.zeros(1, 8)
    for x in torch.randn(steps, 1, 8):
        h = cell(x, h)
    loss = h.pow(2).mean()
    loss.backward()


def recurrent_module() -> None:
    torch.manual_seed(0)
    model = nn.GRU(8, 8)
    out, _ = model(torch.randn(200, 1, 8))
    loss = out.pow(2).mean()
    loss.backward()


def lstm() -> None:
    torch.manual_seed(0)
    # In double precision: oneDNN would make one node of a whole layer.
    model = nn.LSTM(8, 8, batch_first=True).double()
    out, _ = model(torch.randn(4, 30, 8, dtype=torch.float64))
    loss = out.pow(2).mean()
    loss.backward()


def lstm_of_two_layers() -> None:
    torch.manual_seed(0)
    # In double precision: oneDNN would make one node of a whole layer.
    model = nn.LSTM(8, 8, num_layers=2, batch_first=True).double()
    out, _ = model(torch.randn(4, 30, 8, dtype=torch.float64))
    loss = out.pow(2).mean()
    loss.backward()


def lstm_in_two_directions() -> None:
    torch.manual_seed(0)
    # In double precision: oneDNN would make one node of a whole layer.
    model = nn.LSTM(8, 8, bidirectional=True, batch_first=True).double()
    out, _ = model(torch.randn(4, 12, 8, dtype=torch.float64))
    loss = out.pow(2).mean()
    loss.backward()


def small_transformer() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64)
    model = nn.TransformerEncoder(layer, 6)
    out = model(torch.randn(16, 2, 32))
    loss = out.pow(2).mean()
    loss.backward()


class UNet(nn.Module):
    """Three levels down and up again, with a skip across at each."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 4, 8, 16)
        self.down = nn.ModuleList(map(self.double, widths[:-1], widths[1:]))
        self.middle = self.double(16, 32)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in (16, 8, 4))
        self.join = nn.ModuleList(self.double(2 * w, w) for w in (16, 8, 4))
        self.out = nn.Conv2d(4, 2, 1)

    def double(self, inputs: int, width: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join, skip in zip(self.up, self.join, reversed(skips), strict=True):
            x = join(torch.cat([skip, up(x)], 1))
        return self.out(x)


def u_net() -> None:
    torch.manual_seed(0)
    model = UNet()
    out = model(torch.randn(1, 1, 16, 16))
    loss = nn.functional.cross_entropy(out, torch.zeros(1, 16, 16, dtype=torch.long))
    loss.backward()


class DecoderBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.ln_1(x)).unflatten(-1, (3, 4, -1)).movedim(2, 0).transpose(2, 3)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_2(x))


class Decoder(nn.Module):
    """As GPT-2 is built; the head is the embedding of tokens."""

    def __init__(self, depth: int = 4, width: int = 16, tokens: int = 20) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(32, width)
        self.blocks = nn.ModuleList(DecoderBlock(width) for _ in range(depth))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


def decoder_with_tied_embeddings() -> None:
    torch.manual_seed(0)
    model = Decoder()
    tokens = torch.randint(20, (2, 9))
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()


def variational_autoencoder() -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
    to_mean, to_logvar = nn.Linear(16, 4), nn.Linear(16, 4)
    decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 12))
    x = torch.rand(8, 12)
    hidden = encoder(x)
    mean, logvar = to_mean(hidden), to_logvar(hidden)
    z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
    rebuilt = nn.functional.binary_cross_entropy_with_logits(decoder(z), x)
    divergence = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).mean()
    loss = rebuilt + divergence
    loss.backward()


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.actor, self.critic = nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.trunk(x)
        return self.actor(x), self.critic(x)


def actor_critic() -> None:
    torch.manual_seed(0)
    model = ActorCritic()
    states, actions, returns = torch.randn(16, 4), torch.randint(2, (16,)), torch.randn(16)
    logits, values = model(states)
    policy = torch.distributions.Categorical(logits=logits)
    advantage = returns - values.squeeze(1)
    actor_loss = -(policy.log_prob(actions) * advantage.detach()).mean()
    critic_loss = advantage.pow(2).mean()
    loss = actor_loss + 0.5 * critic_loss - 0.01 * policy.entropy().mean()
    loss.backward()


def adversarial_step() -> None:
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
    discriminator = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    loss_of = nn.functional.binary_cross_entropy_with_logits
    real, noise = torch.randn(6, 8), torch.randn(6, 4)
    ones, zeros = torch.ones(6, 1), torch.zeros(6, 1)
    fake = generator(noise)
    d_loss = loss_of(discriminator(real), ones) + loss_of(discriminator(fake.detach()), zeros)
    d_loss.backward()
    g_loss = loss_of(discriminator(fake), ones)
    g_loss.backward()


def siamese() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 8),
    )  # fmt: skip
    anchor, positive, negative = torch.randn(3, 2, 1, 10, 10)
    a, p, n = network(anchor), network(positive), network(negative)
    loss = nn.functional.triplet_margin_loss(a, p, n)
    loss.backward()


def nested_sequential() -> None:
    torch.manual_seed(0)

    def block(width: int) -> nn.Sequential:
        normed = nn.Sequential(nn.BatchNorm1d(width), nn.ReLU())
        return nn.Sequential(nn.Linear(width, width), normed)

    def stack(width: int, depth: int) -> nn.Sequential:
        return nn.Sequential(*(block(width) for _ in range(depth)))

    model = nn.Sequential(stack(8, 3), nn.Sequential(stack(8, 4), nn.Linear(8, 4)), stack(4, 5))
    out = model(torch.randn(6, 8))
    loss = out.pow(2).mean()
    loss.backward()


class MixtureOfExperts(nn.Module):
    """Each row goes to the two experts that the gate prefers."""

    def __init__(self, width: int = 8, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))
            for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, places = (chosen == number).nonzero(as_tuple=True)
            part = expert(x.index_select(0, rows)) * weights[rows, places, None]
            out = out.index_add(0, rows, part)
        return out


def mixture_of_experts() -> None:
    torch.manual_seed(0)
    model = MixtureOfExperts()
    out = model(torch.randn(32, 8))
    loss = out.pow(2).mean()
    loss.backward()


def training_loop() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = torch.zeros(())
    for _epoch in range(3):
        for x in torch.randn(4, 6, 8):
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = total + loss.detach()


MODELS = (transformer, residual_network, recurrent_loop, recurrent_module)
ZOO = (
    *MODELS, lstm, lstm_of_two_layers, lstm_in_two_directions, small_transformer, u_net,
    decoder_with_tied_embeddings, variational_autoencoder, actor_critic, adversarial_step, siamese,
    nested_sequential, mixture_of_experts, training_loop,
)  # fmt: skip
