"""Save and load fitted objects: arrays in a safetensors file, with their structure as JSON, and no code.

``save`` takes a classifier, a source, mechanisms, a posterior, a path of penalties, a graph or unfair paths, and writes
a file; ``load`` takes a file and returns an object that gives the same numbers.
"""

from pyrofair.persistence.saving import load, save

__all__ = ["load", "save"]
