"""Adapters: other systems seen through the battery's interfaces; among them the 24 public faults, each with its twin and its control."""
