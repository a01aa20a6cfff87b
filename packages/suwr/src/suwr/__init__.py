"""Leakage-free local feature selection (Oosterhuis, Lyu and Anand, ICML 2024)."""
from suwr.data import make_and_toy, make_syn
from suwr.exact import DiscreteProblem
from suwr.measures import exact_leakage
