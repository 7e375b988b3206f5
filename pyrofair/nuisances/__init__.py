"""Nuisance functions: one class per learner for propensities and regressions, folds, weights and their diagnostics."""
