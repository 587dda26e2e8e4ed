import type { RedisCommand } from "./protocol.ts";
import { fieldBytes, maxFields } from "./message.ts";

/**
 * Scripts, for steps that must be atomic. They add two error codes that the server does not have: NOSTREAM when there is no such key,
 * FENCED when another session has taken the consumer over.
 */
const asStream = `
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return redis.error_reply('NOSTREAM there is no stream of this name') end
if kind ~= 'stream' then return redis.error_reply('WRONGTYPE the key holds a ' .. kind .. ', not a stream') end
local function named(pairs)
  local found = {}
  for i = 1, #pairs, 2 do found[pairs[i]] = pairs[i + 1] end
  return found
end
local function find(list, name)
  for _, pairs in ipairs(list) do
    local found = named(pairs)
    if found['name'] == name then return found end
  end
end`;

/** KEYS: topic. ARGV: consumers. Creates a missing stream, and a group from the beginning for each consumer that has none. */
const provisionText = `
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  redis.call('XGROUP', 'CREATE', KEYS[1], 'waybill', '$', 'MKSTREAM')
  redis.call('XGROUP', 'DESTROY', KEYS[1], 'waybill')
elseif kind ~= 'stream' then
  return redis.error_reply('WRONGTYPE the key holds something else than a stream')
end
for _, consumer in ipairs(ARGV) do
  local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], consumer, '0')
  if made.err and string.sub(made.err, 1, 9) ~= 'BUSYGROUP' then return made end
end
return 1`;

/**
 * KEYS: topic. ARGV: consumer, session. Gives everything pending in the group to this session, and removes all earlier sessions: a read
 * of theirs that is still on its way takes nothing. Answers how many were pending and are no longer in the stream; they are no longer pending.
 */
const takeText = `${asStream}
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then return consumers end
local deleted = 0
local from = '0-0'
repeat
  local page = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, from, 'COUNT', 1000, 'JUSTID')
  from = page[1]
  deleted = deleted + #(page[3] or {})
until from == '0-0'
for _, consumer in ipairs(consumers) do
  for i = 1, #consumer, 2 do
    if consumer[i] == 'name' and consumer[i + 1] ~= ARGV[2] then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer[i + 1])
    end
  end
end
redis.call('XGROUP', 'CREATECONSUMER', KEYS[1], ARGV[1], ARGV[2])
return deleted`;

/**
 * KEYS: topic. ARGV: consumer, session, count, from, bytes, most. `from` is an id, for what is pending after it, or >, for what the group was
 * not given yet. No entry follows one that reached `bytes`. Answers entries. When there is nothing new, it answers the id
 * after which to wait, and how many entries were removed before the group was given them, or nil when that is unknown. (Redis 7 counts what
 * was added and what was read. It loses the latter at a deleted entry, and its guess hides what was trimmed: so the script counts itself.)
 * An entry that has more than `most` bytes, or more fields than are read, comes as its id, their number and its bytes. Each field counts for
 * some bytes, since it takes memory even where it is empty.
 */
const fetchText = `${asStream}
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then return consumers end
if not find(consumers, ARGV[2]) then return redis.error_reply('FENCED another session has taken over') end
local from = ARGV[4]
local function group() return find(redis.call('XINFO', 'GROUPS', KEYS[1]), ARGV[1]) end
local function reached(id, read) redis.call('XGROUP', 'SETID', KEYS[1], ARGV[1], id, 'ENTRIESREAD', read) end
local before = from == '>' and group()['entries-read']
local entries = {}
local count, bytes, most = tonumber(ARGV[3]), tonumber(ARGV[5]), tonumber(ARGV[6])
while #entries < count and bytes > 0 do
  local found = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', 1, 'STREAMS', KEYS[1], from)
  local entry = found and found[1][2][1]
  if not entry then break end
  local id, fields = entry[1], entry[2]
  if fields then
    local size = 0
    for _, text in ipairs(fields) do size = size + #text + ${fieldBytes} end
    if #fields > ${2 * maxFields} or size > most then
      entry = {id, #fields / 2, size}
      size = ${fieldBytes}
    end
    bytes = bytes - size
  end
  entries[#entries + 1] = entry
  if from ~= '>' then from = id end
end
if #entries > 0 and before then
  local now = group()
  if now['entries-read'] ~= before + #entries then reached(now['last-delivered-id'], before + #entries) end
end
if #entries > 0 or from ~= '>' then return entries end
local now = group()
local id, read, lag = now['last-delivered-id'], now['entries-read'], now['lag']
if lag == nil or lag == 0 then return {id, 0} end
local added = named(redis.call('XINFO', 'STREAM', KEYS[1]))['entries-added']
if read == added then return {id, 0} end
reached(id, added)
return {id, read and math.max(0, added - read)}`;

/** KEYS: topic. Answers the id of the first entry, or nothing. */
const oldestText = `
local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
return first and first[1]`;

/**
 * KEYS: topic. ARGV: an id, the most to delete at once. Deletes entries before the id that every group has acknowledged. Without groups
 * it deletes nothing, since no consumer has read the stream. Answers how many, and whether that was all.
 */
const purgeText = `${asStream}
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return ms, seq
end
local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end
local function earlier(a, b)
  local aMs, aSeq = parts(a)
  local bMs, bSeq = parts(b)
  if aMs ~= bMs then return less(aMs, bMs) end
  return less(aSeq, bSeq)
end
local function after(id)
  local ms, seq = parts(id)
  if #seq > 15 then return id end
  return ms .. '-' .. string.format('%.0f', tonumber(seq) + 1)
end
local floor = ARGV[1]
local groups = redis.call('XINFO', 'GROUPS', KEYS[1])
if #groups == 0 then return {0, 1} end
for _, pairs in ipairs(groups) do
  local group = named(pairs)
  local pending = redis.call('XPENDING', KEYS[1], group['name'])
  local reached = after(group['last-delivered-id'])
  if pending[1] > 0 and earlier(pending[2], reached) then reached = pending[2] end
  if earlier(reached, floor) then floor = reached end
end
local deleted = redis.call('XTRIM', KEYS[1], 'MINID', '~', floor, 'LIMIT', ARGV[2])
if deleted > 0 then return {deleted, 0} end
return {redis.call('XTRIM', KEYS[1], 'MINID', '=', floor), 1}`;

const script =
  (text: string) =>
  (topic: string, ...args: string[]): RedisCommand => ["EVAL", text, "1", topic, ...args];

export const provisionScript = script(provisionText);
export const takeScript = script(takeText);
export const fetchScript = script(fetchText);
export const oldestScript = script(oldestText);
export const purgeScript = script(purgeText);
