// Makes vercel_ai_ui.json and vercel_ai_model.json with ai 6.0.326 and its mock model; no model and no server is asked.
//
// `npm install ai@6.0.326`, then `node tests/rrm/readers/samples/make_vercel_ai.mjs`. One chat of three steps, as useChat keeps it (UI messages) and
// as generateText gives it (model messages): a call that fails, two calls at once of which one is of a dynamic tool, an answer.
import { writeFileSync } from 'node:fs';
import { convertToModelMessages, dynamicTool, jsonSchema, readUIMessageStream, stepCountIs, streamText, tool } from 'ai';
import { MockLanguageModelV3, simulateReadableStream } from 'ai/test';

const HERE = import.meta.dirname;
const usage = {
  inputTokens: { total: 20, noCache: 20, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 5, text: 5, reasoning: 0 },
};
const end = unified => ({ type: 'finish', finishReason: { unified, raw: unified }, usage });
const call = (toolCallId, toolName, input) => ({ type: 'tool-call', toolCallId, toolName, input: JSON.stringify(input) });
const steps = [
  [
    { type: 'reasoning-start', id: 'r' },
    { type: 'reasoning-delta', id: 'r', delta: 'The stock must be looked up.' },
    { type: 'reasoning-end', id: 'r' },
    call('t1', 'stock', { sku: 'A7' }),
    end('tool-calls'),
  ],
  [
    { type: 'text-start', id: 'x' },
    { type: 'text-delta', id: 'x', delta: 'The number has a dash.' },
    { type: 'text-end', id: 'x' },
    call('t2', 'stock', { sku: 'A-7' }),
    call('t3', 'notify', { to: 'the warehouse' }),
    end('tool-calls'),
  ],
  [
    { type: 'text-start', id: 'y' },
    { type: 'text-delta', id: 'y', delta: 'Three of item A-7 are left.' },
    { type: 'text-end', id: 'y' },
    end('stop'),
  ],
];
let step = 0;
const model = new MockLanguageModelV3({
  doStream: async () => ({ stream: simulateReadableStream({ chunks: [{ type: 'stream-start', warnings: [] }, ...steps[step++]] }) }),
});
const object = properties => jsonSchema({ type: 'object', properties });
const tools = {
  stock: tool({
    description: 'How many are left.',
    inputSchema: object({ sku: { type: 'string' } }),
    execute: async ({ sku }) => {
      if (sku === 'A7') throw new Error('no item has the number A7');
      return { sku, left: 3 };
    },
  }),
  notify: dynamicTool({ description: 'Tell someone.', inputSchema: object({ to: { type: 'string' } }), execute: async () => 'they were told' }),
};
const asked = { id: 'u1', role: 'user', parts: [{ type: 'text', text: 'How many of item A-7 are left?' }] };
const result = streamText({ model, tools, stopWhen: stepCountIs(5), messages: await convertToModelMessages([asked]) });
let answer;
for await (const message of readUIMessageStream({ stream: result.toUIMessageStream({ generateMessageId: () => 'a1' }) })) answer = message;
const write = (name, value) => writeFileSync(`${HERE}/${name}`, `${JSON.stringify(value, null, 1)}\n`);
write('vercel_ai_ui.json', { id: 'chat-1', messages: [asked, answer] });
write('vercel_ai_model.json', { id: 'chat-2', messages: [{ role: 'user', content: 'How many of item A-7 are left?' }, ...(await result.response).messages] });
