"""What plug-ins import of Headroom: `predictors`, `expanders` and `cloudproviders`, a module for each kind.

The names here stay within a major version. Those of the packages below them may change at any time.
"""
