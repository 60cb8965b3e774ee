#!/usr/bin/env escript
%%! +S 1 +sbwt none
%% What Erlang itself makes of terms: a line in, a line out. A term is in Erlang's own syntax, with its full stop.
%%
%%   phash2 RANGE TERM.      its hash
%%   uniform COUNT KEY.      the first numbers of exs1024 of the seed {KEY, KEY, KEY}, as the bits of their floats
-mode(compile).

main([]) ->
    ok = io:setopts([{encoding, latin1}]),
    each_line().

each_line() ->
    case io:get_line("") of
        eof -> ok;
        Line ->
            [What, Number, Text] = string:split(Line, " ", all),
            {ok, Tokens, _} = erl_scan:string(Text),
            {ok, Term} = erl_parse:parse_term(Tokens),
            io:format("~s~n", [answer(What, list_to_integer(Number), Term)]),
            each_line()
    end.

answer("phash2", Range, Term) ->
    integer_to_list(erlang:phash2(Term, Range));
answer("uniform", Count, Key) ->
    numbers(Count, rand:seed_s(exs1024, {Key, Key, Key})).

numbers(0, _) -> "";
numbers(Count, State0) ->
    {Number, State} = rand:uniform_s(State0),
    <<Bits:64>> = <<Number/float>>,
    [integer_to_list(Bits), " " | numbers(Count - 1, State)].
