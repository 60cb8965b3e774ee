// The suite's bounds are those of an idle machine: a test that has none of its own may take longer, and those that
// compare two sleeps are tried again.
export default { test: { include: ["streams.test.js"], testTimeout: 120000, retry: 4 } }
