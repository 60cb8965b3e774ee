"""A broker's HTTP management API: addresses, requests, bounds, and what its refusals mean.

What is asked for is elsewhere: the agent lists streams and their retention (`agent.proof.management`), sharding
declares exchanges and queues (`shards.management_broker`).
"""
