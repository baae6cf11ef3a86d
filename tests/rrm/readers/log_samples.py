"""One small record of each format of agents' logs: what the tests of garbage begin with."""

from __future__ import annotations

from typing import Any

ASK = {"role": "user", "content": "q"}
CALL = {"id": "c", "type": "function", "function": {"name": "n", "arguments": "{}"}}
LOGS: dict[str, Any] = {
    "codex": {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": {
        "type": "function_call_output", "call_id": "c", "output": '{"output": "o", "metadata": {"exit_code": 1}}',
    }},
    "gemini": {"sessionId": "s", "projectHash": "p", "messages": [
        {"id": "1", "timestamp": "t", "type": "user", "content": "q"},
        {
            "id": "2", "timestamp": "t", "type": "gemini", "content": "a",
            "thoughts": [{"subject": "s", "description": "d"}], "tokens": {"input": 1},
            "toolCalls": [{
                "id": "c", "name": "n", "args": {}, "status": "error",
                "result": [{"functionResponse": {"id": "c", "name": "n", "response": {"error": "e"}}}],
            }],
        },
    ]},
    "langfuse": {"id": "t", "input": {"messages": [ASK]}, "scores": [{"name": "correct", "value": 1}], "observations": [
        {
            "id": "g", "type": "GENERATION", "startTime": "2026-01-01T00:00:00Z", "input": [ASK],
            "output": {"role": "assistant", "tool_calls": [CALL]}, "usage": {"input": 1}, "parentObservationId": "a",
        },
        {"id": "a", "type": "AGENT", "name": "boss"},
        {"id": "u", "type": "TOOL", "name": "n", "input": {}, "output": "o", "level": "ERROR", "statusMessage": "m"},
    ]},
    "langgraph": {
        "event": "on_chat_model_end", "run_id": "r", "parent_ids": ["p"], "name": "m",
        "data": {"input": {"messages": [[{"type": "human", "content": "q"}]]}, "output": {
            "type": "ai", "content": "a", "tool_calls": [{"name": "n", "args": {}, "id": "c"}]
        }},
        "metadata": {"thread_id": "t"},
    },
    "smolagents": [
        {"task": "q", "task_images": None},
        {"plan": "p", "timing": {"end_time": 1.5}, "model_output_message": {"role": "assistant", "content": "p"}},
        {
            "step_number": 1, "timing": {"start_time": 1.0, "end_time": 2.0, "duration": 1.0},
            "model_input_messages": [{"role": "system", "content": [{"type": "text", "text": "s"}]}],
            "tool_calls": [CALL], "model_output": "a", "observations": "o", "error": {"type": "E", "message": "m"},
            "token_usage": {"input_tokens": 1, "output_tokens": 1}, "action_output": "x",
        },
        {"output": "done"},
    ],
    "crewai": {
        "raw": "a",
        "tasks_output": [
            {
                "description": "q", "expected_output": "e", "raw": "a", "agent": "b",
                "messages": [ASK, {"role": "assistant", "content": "a"}],
            },
            {"description": "r", "expected_output": "e", "raw": "b", "agent": "b"},
        ],
        "token_usage": {"total_tokens": 1},
    },
    "adk": {"id": "s", "appName": "app", "state": {"k": 1}, "events": [
        {"author": "user", "invocationId": "i", "content": {"role": "user", "parts": [{"text": "q"}]}},
        {
            "author": "boss", "invocationId": "i", "timestamp": 1.5,
            "content": {"role": "model", "parts": [{"text": "t", "thought": True}, {"functionCall": {
                "id": "c", "name": "n", "args": {}
            }}]},
            "usageMetadata": {"totalTokenCount": 1},
        },
        {
            "author": "boss", "invocationId": "i",
            "content": {"role": "user", "parts": [{"functionResponse": {
                "id": "c", "name": "n", "response": {"result": "o"}
            }}]},
            "errorCode": "E",
        },
    ]},
    "autogen": {
        "messages": [
            {"type": "TextMessage", "source": "user", "content": "q", "metadata": {}},
            {
                "type": "ToolCallRequestEvent", "source": "b", "content": [{"id": "c", "name": "n", "arguments": "{}"}],
                "models_usage": {"prompt_tokens": 1},
            },
            {"type": "ToolCallExecutionEvent", "source": "b", "content": [{
                "call_id": "c", "name": "n", "content": "o", "is_error": True
            }]},
            {"type": "ThoughtEvent", "source": "b", "content": "t"},
            {"type": "MultiModalMessage", "source": "b", "content": ["a", {"data": "R0lG"}]},
        ],
        "stop_reason": "s",
    },
    "pydantic_ai": [
        {"kind": "request", "instructions": "s", "parts": [{"part_kind": "user-prompt", "content": ["q", {
            "kind": "image-url", "url": "u"
        }]}]},
        {"kind": "response", "model_name": "m", "usage": {"input_tokens": 1}, "parts": [
            {"part_kind": "thinking", "content": "t"},
            {"part_kind": "tool-call", "tool_name": "n", "args": "{}", "tool_call_id": "c"},
        ]},
        {"kind": "request", "parts": [{
            "part_kind": "retry-prompt", "content": "o", "tool_name": "n", "tool_call_id": "c"
        }]},
    ],
    "llama_index": {"messages": [
        {"role": "user", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": "q"}]},
        {"role": "assistant", "additional_kwargs": {"tool_calls": [CALL]}, "blocks": [
            {"block_type": "thinking", "content": "t"},
            {"block_type": "tool_call", "tool_call_id": "c", "tool_name": "n", "tool_kwargs": {}},
        ]},
        {"role": "tool", "additional_kwargs": {"tool_call_id": "c", "name": "n"}, "blocks": [{
            "block_type": "text", "text": "o"
        }]},
    ]},
    "vercel_ai": {"id": "i", "messages": [
        {"id": "u", "role": "user", "parts": [
            {"type": "text", "text": "q"}, {"type": "file", "mediaType": "image/png", "url": "u"}
        ]},
        {"id": "a", "role": "assistant", "parts": [
            {"type": "step-start"}, {"type": "reasoning", "text": "t"},
            {"type": "tool-n", "toolCallId": "c", "state": "output-error", "input": {}, "errorText": "e"},
            {"type": "dynamic-tool", "toolName": "n", "toolCallId": "d", "state": "output-available", "output": 1},
            {"type": "source-url", "url": "u"}, {"type": "text", "text": "a"},
        ]},
    ]},
    "bedrock": {
        "messages": [
            {"role": "user", "content": [{"text": "q"}, {"image": {"format": "png", "source": {"bytes": "R0lG"}}}]},
            {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "t"}}}, {"toolUse": {
                "toolUseId": "c", "name": "n", "input": {}
            }}]},
            {"role": "user", "content": [{"toolResult": {
                "toolUseId": "c", "content": [{"json": {"k": 1}}], "status": "error"
            }}]},
        ],
        "system": [{"text": "s"}], "toolConfig": {"tools": [{"toolSpec": {"name": "n", "inputSchema": {"json": {}}}}]},
        "output": {"message": {"role": "assistant", "content": [{"text": "a"}]}},
    },
}  # fmt: skip
