#!/usr/bin/env escript
%%! +S 1 +sbwt none
%% What osiris, the broker's own log library, makes of a log. Written against osiris 1.3 (RabbitMQ 3.10).
%%
%%   osiris_oracle.escript PLUGINS attach DIR    a spec a line in (first, last, next, N, timestamp:T), a chunk id a line out
%%   osiris_oracle.escript PLUGINS chunks DIR    a line out for every chunk of any type, its data's CRC checked by osiris
%%   osiris_oracle.escript PLUGINS range DIR     the first and the last offset out, or `empty`
%%   osiris_oracle.escript PLUGINS write DIR MAX_SEGMENT_BYTES MAX_SEGMENT_CHUNKS
%%                                               a chunk a line in: EPOCH TIMESTAMP TYPE TRAILER ENTRY...
%%   osiris_oracle.escript PLUGINS lead DIR MAX_SEGMENT_BYTES MAX_SEGMENT_CHUNKS
%%                                               a round of the stream's leader a line in: EPOCH TIMESTAMP TRACKING
%%                                               ENTRY...; osiris gives snapshots the time of day
%%
%% PLUGINS is the broker's plugins directory. What osiris cannot answer comes out as `error` and its reason. An entry is a
%% message, or RECORDS:COMPRESSION:UNCOMPRESSED_BYTES:DATA; TRACKING is `-`, or TYPE:ID:VALUE and more after commas; bytes
%% are in base64, none as `-`.
-mode(compile).

main([Plugins | Command]) ->
    [true = code:add_patha(Ebin) || Ebin <- filelib:wildcard(filename:join([Plugins, "*", "ebin"]))],
    ok = io:setopts([binary, {encoding, latin1}]),
    run(Command).

run(["attach", Dir]) ->
    each_line(fun(Line) -> say("~s", [answer(fun() -> attach(spec(Line), Dir) end)]) end);
run(["chunks", Dir]) ->
    {ok, Headers} = open(first, Dir),
    {ok, Chunks} = open(first, Dir),
    chunks(Headers, Chunks);
run(["range", Dir]) ->
    case osiris_log:overview(Dir) of
        {empty, _} -> say("empty", []);
        {{First, Last}, _} -> say("~b ~b", [First, Last])
    end;
run(["write" | Log]) ->
    write_lines(Log, fun write/3);
run(["lead" | Log]) ->
    put(tracking, osiris_tracking:init(undefined, #{})),
    write_lines(Log, fun lead/3).

%% Reading

spec(<<"first">>) -> first;
spec(<<"last">>) -> last;
spec(<<"next">>) -> next;
spec(<<"timestamp:", T/binary>>) -> {timestamp, binary_to_integer(T)};
spec(Offset) -> binary_to_integer(Offset).

%% Where a reader attaches is where it stands before it reads: behind it, it skips chunks that are not the user's.
attach(Spec, Dir) ->
    {ok, Log} = open(Spec, Dir),
    ChunkId = osiris_log:next_offset(Log),
    ok = osiris_log:close(Log),
    integer_to_list(ChunkId).

open(Spec, Dir) ->
    Committed = atomics:new(2, []),
    ok = atomics:put(Committed, 1, 1 bsl 62),
    osiris_log:init_offset_reader(Spec, #{name => "oracle",
                                          dir => Dir,
                                          offset_ref => Committed,
                                          readers_counter_fun => fun(_) -> ok end,
                                          options => #{chunk_selector => all}}).

%% Two readers side by side: one gives the header's fields, the other checks the data's CRC.
chunks(Headers0, Chunks0) ->
    case {osiris_log:read_header(Headers0), osiris_log:read_chunk(Chunks0)} of
        {{ok, #{chunk_id := Id, type := Type, epoch := Epoch, timestamp := Timestamp, num_records := Records,
                num_entries := Entries, crc := Crc, data_size := DataSize, trailer_size := TrailerSize,
                position := Position}, Headers},
         {ok, {Type, Id, Epoch, _Header, _Data, _Trailer}, Chunks}} ->
            say("~b ~b ~b ~b ~b ~b ~b ~b ~b ~b",
                [Id, Type, Epoch, Timestamp, Records, Entries, Crc, DataSize, TrailerSize, Position]),
            chunks(Headers, Chunks);
        {{end_of_stream, Headers}, {end_of_stream, Chunks}} ->
            osiris_log:close(Headers),
            osiris_log:close(Chunks)
    end.

answer(Ask) ->
    try Ask()
    catch
        _:Reason -> io_lib:format("error ~0p", [Reason])
    end.

%% Writing

write_lines([Dir, MaxBytes, MaxChunks], Write) ->
    ok = application:set_env(osiris, max_segment_size_chunks, list_to_integer(MaxChunks)),
    put(config, #{name => "oracle", dir => Dir, max_segment_size_bytes => list_to_integer(MaxBytes)}),
    each_line(fun(Line) ->
                      [Epoch, Timestamp | Rest] = binary:split(Line, <<" ">>, [global]),
                      put(log, Write(writer(binary_to_integer(Epoch)), binary_to_integer(Timestamp), Rest))
              end),
    close_writer().

write(Log, Timestamp, [Type, Trailer | Entries]) ->
    osiris_log:write(entries(Entries), binary_to_integer(Type), Timestamp, bytes(Trailer), Log).

%% As osiris_writer does in handle_batch, which cannot be had without a running broker.
lead(Log0, Timestamp, [Tracking | Entries]) ->
    Tracking0 = track(Tracking, osiris_log:next_offset(Log0), get(tracking)),
    {Log, Tracking1} = osiris_log:evaluate_tracking_snapshot(Log0, Tracking0),
    {Delta, Tracking2} = osiris_tracking:flush(Tracking1),
    put(tracking, Tracking2),
    case Entries of
        [] when Delta =/= [] -> osiris_log:write([Delta], 1, Timestamp, <<>>, Log);
        _ -> osiris_log:write(entries(Entries), 0, Timestamp, Delta, Log)
    end.

track(<<"-">>, _ChunkId, Tracking) ->
    Tracking;
track(Records, ChunkId, Tracking) ->
    lists:foldl(fun(Record, State) ->
                        [Type, Id, Value] = binary:split(Record, <<":">>, [global]),
                        osiris_tracking:add(bytes(Id), binary_to_existing_atom(Type), binary_to_integer(Value), ChunkId,
                                            State)
                end, Tracking, binary:split(Records, <<",">>, [global])).

%% osiris takes the entries of a chunk last one first.
entries(Entries) ->
    lists:reverse([entry(binary:split(Entry, <<":">>, [global])) || Entry <- Entries]).

entry([Message]) -> bytes(Message);
entry([Records, Compression, Uncompressed, Data]) ->
    {batch, binary_to_integer(Records), binary_to_integer(Compression), binary_to_integer(Uncompressed), bytes(Data)}.

bytes(<<"-">>) -> <<>>;
bytes(Base64) -> base64:decode(Base64).

%% A log is opened anew for each epoch, as a new leader does.
writer(Epoch) ->
    case get(epoch) of
        Epoch -> get(log);
        _ ->
            close_writer(),
            put(epoch, Epoch),
            osiris_log:init(maps:put(epoch, Epoch, get(config)))
    end.

close_writer() ->
    case erase(log) of
        undefined -> ok;
        Log -> osiris_log:close(Log)
    end.

%% Lines

each_line(Fun) ->
    case io:get_line("") of
        eof -> ok;
        Line ->
            Fun(string:trim(Line, trailing, "\n")),
            each_line(Fun)
    end.

say(Format, Values) -> io:put_chars([io_lib:format(Format, Values), $\n]).
