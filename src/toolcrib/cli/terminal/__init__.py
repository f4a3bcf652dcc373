"""The chat on the whole screen. What happens is told as events; ``story`` makes blocks of them, widgets show those."""
