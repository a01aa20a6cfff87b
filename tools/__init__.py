"""What the nox sessions are made of: one module an idea, the standard library and nox's own requirements only."""
