"""Known faults, each with its correct twin and its control. Good code never has a flag that makes it faulty."""
