"""Pure numerics, columns over all series: no clock, no chance, nothing of ours."""
