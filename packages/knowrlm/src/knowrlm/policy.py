"""The knowledge-aware policy: which site to mutate, and which residue to walk to on the graph (Section 3)."""

import torch
from jaxtyping import Bool, Float, Int
from offprints.checks import message, require_choice, require_range
from torch import Tensor, nn
from torch.nn import functional as F

from knowrlm.plm import OneHotEncoder
from knowrlm.space import MASK, VariantSpace

REFERENCES = ("difference", "ratio")
FLOOR = 1e-3


class KnowledgePolicy(nn.Module):
    """π(site, residue | sequence) = π_θ(site | h) · P(residue | site, h), and the value V_θ(h) (Section 3).

    h ∈ R^{L×e} are the encoder's states, taken relative to those of the parent with all sites masked: h − h_ref, or
    h / h_ref with |h_ref| at least 1e-3. Flattened, Linear(L·e → k) gives the site's logits, Linear(L·e → 512) → GELU →
    LayerNorm → Linear(1) the value. The residue is drawn from the window W on the graph with
    P(b) ∝ exp(cos(h_site(seq), h_site(seq with b)) / τ), b ∈ W; τ → 0 is the arg-max.

    Args:
        space: the variants; L, k and the parent come from it.
        encoder: tokens (B, L) -> states (B, L, e), with an attribute `width` = e; one-hot by default.
        reference: "difference" or "ratio".
        temperature: τ ≥ 0.
        knowledge: False draws the residue uniformly from the window, whatever its states (an ablation, Table 3).
        finetune: whether the encoder is trained too.
        device: of the heads.
        dtype: of the heads.

    Raises:
        ValueError: if an option is unknown or out of range.
    """

    def __init__(
        self,
        space: VariantSpace,
        encoder: nn.Module | None = None,
        *,
        reference: str = "difference",
        temperature: float = 0.1,
        knowledge: bool = True,
        finetune: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_choice("reference", reference, REFERENCES)
        require_range("temperature", temperature, low=0)
        self.encoder = encoder if encoder is not None else OneHotEncoder(device=device, dtype=dtype)
        width = getattr(self.encoder, "width", None)
        if not isinstance(width, int):
            raise ValueError(message("encoder", "a module with an integer attribute width", type(encoder).__name__))
        self.encoder.requires_grad_(finetune)
        self.reference_kind, self.temperature, self.knowledge, self.finetune = (
            reference,
            temperature,
            knowledge,
            finetune,
        )
        length = len(space.parent)
        self.places = [site - 1 for site in space.sites]
        self.site_head = nn.Linear(length * width, space.k, device=device, dtype=dtype)
        self.value_head = nn.Sequential(
            nn.Linear(length * width, 512, device=device, dtype=dtype),
            nn.GELU(),
            nn.LayerNorm(512, device=device, dtype=dtype),
            nn.Linear(512, 1, device=device, dtype=dtype),
        )
        masked = space.parent_codes.copy()
        masked[self.places] = MASK
        with torch.no_grad():
            tokens = torch.tensor(masked.astype("int64")[None], device=self.site_head.weight.device)
            self.register_buffer("reference", self.encoder(tokens)[0].detach().clone())
        sites = torch.tensor(self.places, device=self.site_head.weight.device)
        self.register_buffer("site_places", sites, persistent=False)

    def relative(self, states: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch features"]:
        """(B, L·e): states relative to the masked parent's, flattened."""
        reference = self.reference
        if self.reference_kind == "difference":
            return (states - reference).flatten(1)
        sign = torch.where(reference < 0, -1.0, 1.0).to(reference.dtype)
        return (states / torch.where(reference.abs() < FLOOR, FLOOR * sign, reference)).flatten(1)

    def heads(
        self, states: Float[Tensor, "batch length width"]
    ) -> tuple[Float[Tensor, "batch k"], Float[Tensor, " batch"]]:
        """(B, k) logits of the site and (B,) values from the encoder's states."""
        features = self.relative(states)
        return self.site_head(features), self.value_head(features).squeeze(1)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> tuple[Float[Tensor, "batch k"], Float[Tensor, " batch"]]:
        """(B, k) logits of the site and (B,) values of sequences of residue codes."""
        return self.heads(self.encoder(tokens))

    def residue_logits(
        self,
        own: Float[Tensor, "batch width"],
        candidates: Float[Tensor, "batch 20 width"],
        allowed: Bool[Tensor, "batch 20"],
    ) -> Float[Tensor, "batch 20"]:
        """(B, 20) log P(b) of the preferential walk: cos / τ over the window, −inf outside.

        Args:
            own: states at the site as it is.
            candidates: states at the site after each substitution; rows that are not allowed are not read.
            allowed: the window W; each row needs one True.
        """
        if not self.knowledge:
            logits = torch.zeros_like(candidates[..., 0])
        else:
            cosine = F.cosine_similarity(own[:, None], candidates, dim=2)
            if self.temperature == 0:
                best = torch.where(allowed, cosine, -torch.inf).argmax(1, keepdim=True)
                logits = torch.full_like(cosine, -torch.inf).scatter(1, best, 0.0)
            else:
                logits = cosine / self.temperature
        return torch.log_softmax(torch.where(allowed, logits, -torch.inf), dim=1)

    def walk_logits(
        self,
        tokens: Int[Tensor, "batch length"],
        site: Int[Tensor, " batch"],
        allowed: Bool[Tensor, "batch 20"],
        states: Float[Tensor, "batch length width"] | None = None,
    ) -> Float[Tensor, "batch 20"]:
        """`residue_logits` with every candidate sequence of the batch encoded in one call.

        Args:
            tokens: the sequences.
            site: index of the site, 0 … k − 1.
            allowed: the window.
            states: the encoder's states of `tokens`, if they are known.
        """
        states = self.encoder(tokens) if states is None else states
        place = self.site_places[site]
        row, residue = allowed.nonzero(as_tuple=True)
        changed = tokens[row].clone()
        changed[torch.arange(len(row), device=tokens.device), place[row]] = residue.to(tokens.dtype)
        encoded = self.encoder(changed)[torch.arange(len(row), device=tokens.device), place[row]]
        candidates = states.new_zeros(len(tokens), 20, states.shape[2]).index_put((row, residue), encoded)
        own = states[torch.arange(len(tokens), device=tokens.device), place]
        return self.residue_logits(own, candidates, allowed)

    def log_prob(
        self,
        tokens: Int[Tensor, "batch length"],
        site: Int[Tensor, " batch"],
        residue: Int[Tensor, " batch"],
        allowed: Bool[Tensor, "batch 20"],
        movable: Bool[Tensor, " k"] | None = None,
        joint: bool = True,
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """(B,) log π(site, residue), entropy and value.

        Args:
            tokens: the sequences.
            site: the sites that were chosen.
            residue: the residues that were chosen.
            allowed: the windows they were drawn from.
            movable: sites where another residue is allowed; all by default.
            joint: with log P(residue), the gradient of the expected reward; without, the site's log-probability alone.
        """
        states = self.encoder(tokens)
        logits, value = self.heads(states)
        chosen, entropy = site_log_prob(logits, site, movable)
        if joint:
            walk = self.walk_logits(tokens, site, allowed, states)
            chosen = chosen + walk.gather(1, residue[:, None]).squeeze(1)
            entropy = entropy + entropy_of(walk)
        return chosen, entropy, value


def site_log_prob(
    logits: Float[Tensor, "batch k"], site: Int[Tensor, " batch"], movable: Bool[Tensor, " k"] | None = None
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """(B,) log π(site) and the entropy of π (Section 3); sites that cannot move have probability 0."""
    if movable is not None:
        logits = torch.where(movable, logits, -torch.inf)
    logits = torch.log_softmax(logits, dim=1)
    return logits.gather(1, site[:, None]).squeeze(1), entropy_of(logits)


def entropy_of(logits: Float[Tensor, "batch n"]) -> Float[Tensor, " batch"]:
    """(B,) −Σ p log p of normalised log-probabilities, −inf counting as 0 (also in the gradient)."""
    finite = torch.where(torch.isinf(logits), 0.0, logits)
    return -(torch.where(torch.isinf(logits), 0.0, logits.exp()) * finite).sum(1)
