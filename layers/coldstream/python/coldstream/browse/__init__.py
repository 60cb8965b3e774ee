"""Views of an archive for people: what the HTTP API and the console show, as frozen values, without HTML or HTTP.

`catalogue` lists the streams, `timeline` draws one of them, `messages` reads pages of it, with `fragments`, `chunks`
and `entries` for what lies beneath; `search` looks for messages in bounded slices, `health` gathers what is wrong, and
`cost` tells what all of it costs. Begin at `catalogue`.

Everything here only reads, by the ports to the table and to the bucket, and by the readers and formats of the other
packages. Names and bodies are data, whatever they contain: nothing is interpreted, and whoever shows them escapes them.
Only `broker_probe` connects to a broker, so nothing else here imports it.
"""
