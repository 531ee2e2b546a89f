"""Matrix, plan, compilation, packaging: from an author's project to checked variants in ``build/``."""
