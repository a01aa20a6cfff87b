"""One report on any selector: feature leakage by probes, label leakage from data; an assertion (Section 2)."""

from dataclasses import dataclass

from suwr.measures import ExactLeakage, exact_leakage
from suwr.probes import Certificate, ProbeReport, Sampler, probe_selector
from suwr.selectors import Selector
from suwr.surrogates import LabelLeakage, label_leakage

__all__ = [
    "Certificate", "ExactLeakage", "LabelLeakage", "LeakageReport", "ProbeReport", "assert_leak_free", "exact_leakage",
    "label_leakage", "leakage_report", "probe_selector",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class LeakageReport:
    """Both tests.

    Attributes:
        probes: of feature leakage.
        labels: of label leakage; None where no y was given.
    """

    probes: ProbeReport
    labels: LabelLeakage | None

    @property
    def feature_leakage(self) -> float:
        """Mean |pi(S|x') - pi(S|x)| over the probes; for a deterministic selector the leak rate."""
        return self.probes.mean_gap

    @property
    def label_leakage(self) -> float | None:
        """Estimated L_Y in nats (numbers: in variances of y); None without y."""
        return None if self.labels is None else self.labels.gap

    @property
    def worst_case(self) -> float:
        """Largest |pi(S|x') - pi(S|x)| over the probes; 1 for a deterministic selector that leaks."""
        return self.probes.max_gap

    @property
    def certificate(self) -> Certificate | None:
        """The worst pair of rows, if there is one."""
        return self.probes.certificate

    @property
    def is_leak_free(self) -> bool | None:
        """False if either test found a leak; None, not True, for a selector that can only be sampled."""
        if self.probes.leaks or (self.labels is not None and self.labels.leaks):
            return False
        return None if self.probes.kind == "sampled" else True

    def __str__(self) -> str:
        lines = [f"features: {self.probes.verdict} (hidden values from {self.probes.conditional})"]
        if self.labels is not None:
            low, high = self.labels.interval
            found = "leaks" if self.labels.leaks else "no leak found"
            lines.append(f"labels: {found}; the mask adds {self.labels.gap:.4f} [{low:.4f}, {high:.4f}]")
        if self.certificate is not None:
            lines.append(str(self.certificate))
        return "\n".join(lines)


def leakage_report(
    selector: Selector, X: object, y: object = None, *, n_probes: int | None = None,
    conditional: str | Sampler | None = None, random_state: int = 0,
) -> LeakageReport:  # fmt: skip
    """Probe a selector, and estimate its label leakage where `y` is given.

    Args:
        selector: a function (n, d) -> (n, d) bool, or an object with `local_support`.
        X: (n, d) rows, an array or a frame.
        y: (n,) labels or numbers, or None.
        n_probes: see `probe_selector`.
        conditional: see `probe_selector`.
        random_state: of both tests.

    Raises:
        TypeError, ValueError: see `probe_selector` and `label_leakage`.
    """
    probes = probe_selector(selector, X, n_probes=n_probes, conditional=conditional, random_state=random_state)
    labels = None if y is None else label_leakage(selector, X, y, random_state=random_state)
    return LeakageReport(probes, labels)


def assert_leak_free(
    selector: Selector, X: object, *, n_probes: int | None = None, conditional: str | Sampler | None = None,
    random_state: int = 0,
) -> None:  # fmt: skip
    """For test suites: raise if a probe finds a leak.

    Raises:
        AssertionError: with the certificate.
        TypeError, ValueError: see `probe_selector`.
    """
    found = probe_selector(selector, X, n_probes=n_probes, conditional=conditional, random_state=random_state)
    if found.leaks:
        raise AssertionError(f"the selector {found.verdict}\n{found.certificate}")
