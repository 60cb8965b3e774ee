"""Which subscriptions the archive serves, and for how long: one `Takeover` a connection, between client and broker.

Begin with `takeover.py`, which is told of every frame that matters, then `subscription.py`, which follows one
subscription. `plan.py` decides where it begins. No sockets here, and no frames are parsed but by `frames/`.
"""
