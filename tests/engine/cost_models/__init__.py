"""Tests of the contract of cost models, and of the exact one's figures."""
