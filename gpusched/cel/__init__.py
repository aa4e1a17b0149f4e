"""How is a CEL expression read, checked and run? One engine for rules of custom kinds, admission policies, device selectors and stages."""
