"""Local and global Lipschitz constants of self-attention (Castin, Ablin and Peyré, ICML 2024)."""
