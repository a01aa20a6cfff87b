"""Fourier neural operators on arbitrary point sets by direct spectral evaluation."""
