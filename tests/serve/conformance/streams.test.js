// The protocol's own conformance suite, as its package has it, at the server of SERVER_URL.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

// The server is told to end a long poll after a second. The suite waits longer for that: the machine may be busy.
runConformanceTests({ baseUrl: process.env.SERVER_URL, longPollTimeoutMs: 120000 })
