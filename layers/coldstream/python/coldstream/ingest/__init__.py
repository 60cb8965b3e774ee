"""From a segment file beside the broker to an announced copy in the archive's staging area.

Begin with `announcer`: it stages a slice, puts its event on the bus and finds out what became of it. `slice` is what is
staged, `stage` and `multipart` send it, `bus` is EventBridge. The `announce` command and the agent both use this
package. Nothing here decides what is committed, and nothing here writes to the manifest: the upload function does.
"""
