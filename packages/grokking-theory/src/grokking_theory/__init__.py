"""Is a network still a kernel machine, and therefore unable to generalise? The theory of grokking, as tools.

From "Why Do You Grok? A Theoretical Analysis of Grokking Modular Addition" (ICML 2024): NTK drift of any torch model,
kernel lower bounds and ℓ∞ upper bounds with their constants, the exact Fourier network, ℓ∞-regularised training.
"""

from typing import TYPE_CHECKING

from grokking_theory import bounds
from grokking_theory._version import VERSION as __version__
from grokking_theory.baselines import ConstantPredictor
from grokking_theory.bounds import certificate, kernel_lower_bound, min_samples_kernel
from grokking_theory.cayley import (
    OrbitError,
    TableBound,
    operation_lower_bound,
    operation_target,
    orbit_lower_bound,
    symmetric_generators,
    table_lower_bound,
)
from grokking_theory.construct import fourier_construction, verify_construction
from grokking_theory.data import load_table
from grokking_theory.empirical import MemoryBudgetError, empirical_ntk
from grokking_theory.history import History
from grokking_theory.kernels import check_equivariance, expected_ntk, match_kernel, onehot_rbf, quadratic_ntk
from grokking_theory.linearized import Linearization, LinearizedCurve, linearized_curve, linearized_predictions
from grokking_theory.margins import margin, margin_loss, normalized_margin, output_margin
from grokking_theory.model import QuadraticNetwork
from grokking_theory.regularizer import LinfRegularizer
from grokking_theory.report import GrokkingReport, change_point, grokking_report
from grokking_theory.spectrum import FourierSpectrum, fourier_spectrum
from grokking_theory.tasks import ModularAddition, Task, require_consistent, sample_size, table
from grokking_theory.tracker import NTKRecord, NTKTracker, kernel_distance, label_alignment
from grokking_theory.train import fit
from grokking_theory.transformer import TinyTransformer

if TYPE_CHECKING:
    from grokking_theory.regression import KernelRegressor

__all__ = [
    "ConstantPredictor",
    "FourierSpectrum",
    "GrokkingReport",
    "History",
    "KernelRegressor",
    "Linearization",
    "LinearizedCurve",
    "LinfRegularizer",
    "MemoryBudgetError",
    "ModularAddition",
    "NTKRecord",
    "NTKTracker",
    "OrbitError",
    "QuadraticNetwork",
    "TableBound",
    "Task",
    "TinyTransformer",
    "__version__",
    "bounds",
    "certificate",
    "change_point",
    "check_equivariance",
    "empirical_ntk",
    "expected_ntk",
    "fit",
    "fourier_construction",
    "fourier_spectrum",
    "grokking_report",
    "kernel_distance",
    "kernel_lower_bound",
    "label_alignment",
    "linearized_curve",
    "linearized_predictions",
    "load_table",
    "margin",
    "margin_loss",
    "match_kernel",
    "min_samples_kernel",
    "normalized_margin",
    "onehot_rbf",
    "operation_lower_bound",
    "operation_target",
    "orbit_lower_bound",
    "output_margin",
    "quadratic_ntk",
    "require_consistent",
    "sample_size",
    "symmetric_generators",
    "table",
    "table_lower_bound",
    "verify_construction",
]


def __getattr__(name: str) -> object:
    """`KernelRegressor` on first use: scikit-learn takes longer to import than all the rest."""
    if name == "KernelRegressor":
        from grokking_theory.regression import KernelRegressor

        return KernelRegressor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
