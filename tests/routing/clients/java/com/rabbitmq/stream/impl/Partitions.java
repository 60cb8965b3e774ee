// Partitions that RabbitMQ's stream client for Java chooses: a key a line in, in UTF-8, its partition a line out.
// In the client's own package, for its hash is not public.
package com.rabbitmq.stream.impl;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

public final class Partitions {
    public static void main(String[] arguments) throws Exception {
        int partitions = Integer.parseInt(arguments[0]);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String key = in.readLine(); key != null; key = in.readLine()) {
            out.println(Integer.remainderUnsigned(HashUtils.MURMUR3.applyAsInt(key), partitions));
        }
        out.flush();
    }
}
