"""What runs reached: pages that open anywhere, tables for the terminal and for machines, figures."""
