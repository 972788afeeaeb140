-- Wireshark dissector of the rig's token protocol, both versions, on UDP port 5005 (preference `ports`).
--
--   wireshark -X lua_script:token.lua -r capture.pcapng
--   tshark -2 -X lua_script:token.lua -r capture.pcapng -Y 'token.response_time > 0.005'
--
-- A request and its answers refer to each other by frame (token.response_in, token.request_in); token.response_time is
-- exact: pinfo.rel_ts is a double too, but of the time since the first frame, which it holds to the nanosecond for
-- weeks (pinfo.abs_ts counts from 1970 and steps by 238 ns; frame.time_epoch is not there in a pass without a tree).

local token = Proto("token", "Rig token protocol")

local types = { [1] = "request", [2] = "answer", [3] = "acknowledge", [4] = "error", [5] = "sentinel" }
local kinds = { [1] = "start", [2] = "end", [3] = "probe" }
local counters = { "rx_requests", "rx_bad", "tx_answers", "tx_acks", "pushes", "tx_err", "rx_sentinels", "uptime_ms" }

local f = {
  version = ProtoField.uint8("token.version", "Version"),
  magic = ProtoField.string("token.magic", "Magic"),
  type = ProtoField.uint8("token.type", "Type", base.DEC, types),
  flags = ProtoField.uint8("token.flags", "Flags", base.HEX),
  first = ProtoField.bool("token.flags.first", "First", 8, nil, 0x01),
  last = ProtoField.bool("token.flags.last", "Last", 8, nil, 0x02),
  request_id = ProtoField.uint32("token.request_id", "Request id", base.DEC),
  sentinel = ProtoField.uint32("token.sentinel", "Sentinel", base.DEC, kinds),
  sequence = ProtoField.uint32("token.sequence", "Sequence", base.DEC),
  boot_id = ProtoField.uint32("token.boot_id", "Boot id", base.HEX),
  payload_length = ProtoField.uint16("token.payload_length", "Payload length", base.DEC),
  reserved = ProtoField.uint16("token.reserved", "Reserved", base.HEX),
  t_rx = ProtoField.uint64("token.t_rx", "Request received, ns", base.DEC),
  t_ready = ProtoField.uint64("token.t_ready", "Inference done, ns", base.DEC),
  t_send = ProtoField.uint64("token.t_send", "Send, ns", base.DEC),
  prev_queued = ProtoField.uint32("token.prev_queued", "Previous datagram queued after its send, ns", base.DEC),
  crc32 = ProtoField.uint32("token.crc32", "Header CRC-32", base.HEX),
  sum8 = ProtoField.uint8("token.sum8", "Payload sum", base.HEX),
  answer_tokens = ProtoField.uint16("token.answer_tokens", "Answer tokens asked for", base.DEC),
  tokens = ProtoField.uint16("token.tokens", "Tokens in this datagram", base.DEC),
  id = ProtoField.uint32("token.id", "Token", base.DEC),
  counter = ProtoField.uint32("token.counter", "Counter", base.DEC),
  request_in = ProtoField.framenum("token.request_in", "Request in frame", base.NONE, frametype.REQUEST),
  response_in = ProtoField.framenum("token.response_in", "First answer in frame", base.NONE, frametype.RESPONSE),
  last_in = ProtoField.framenum("token.last_in", "Last answer in frame", base.NONE, frametype.RESPONSE),
  response_time = ProtoField.relative_time("token.response_time", "Response time"),
}
token.fields = f

local e = {
  crc = ProtoExpert.new("token.bad_crc", "Header CRC is wrong", expert.group.CHECKSUM, expert.severity.ERROR),
  sum = ProtoExpert.new("token.bad_sum", "Payload sum is wrong", expert.group.CHECKSUM, expert.severity.ERROR),
  length = ProtoExpert.new("token.bad_length", "Length is wrong", expert.group.MALFORMED, expert.severity.ERROR),
  type = ProtoExpert.new("token.bad_type", "Unknown type", expert.group.PROTOCOL, expert.severity.WARN),
  reserved = ProtoExpert.new("token.bad_reserved", "Reserved field is not 0", expert.group.PROTOCOL, expert.severity.WARN),
  lost = ProtoExpert.new("token.unanswered", "No answer in this capture", expert.group.SEQUENCE, expert.severity.NOTE),
}
token.experts = e
token.prefs.ports = Pref.range("UDP ports", "5005", "UDP ports of the token service", 65535)

-- Exchanges by version, asker, board and request id; filled in the first pass over the file.
local exchanges = {}
local by_frame = {}

function token.init()
  exchanges = {}
  by_frame = {}
end

local crc_table = {}
for index = 0, 255 do
  local value = index
  for _ = 1, 8 do
    value = (value % 2 == 1) and bit.bxor(bit.rshift(value, 1), 0xEDB88320) or bit.rshift(value, 1)
  end
  crc_table[index] = value
end

-- CRC-32 of the 52 header bytes with the CRC field taken as zero.
local function header_crc(tvb)
  local bytes = tvb:range(0, 48):bytes()
  local crc = 0xFFFFFFFF
  for index = 0, 51 do
    local octet = index < 48 and bytes:get_index(index) or 0
    crc = bit.bxor(bit.rshift(crc, 8), crc_table[bit.band(bit.bxor(crc, octet), 0xFF)])
  end
  return bit.bnot(crc) % 0x100000000
end

local function payload_sum(tvb)
  local sum = 0
  if tvb:len() > 5 then
    local bytes = tvb:range(5):bytes()
    for index = 0, bytes:len() - 1 do
      sum = sum + bytes:get_index(index)
    end
  end
  return sum % 256
end

local function relative_ns(pinfo)
  return math.floor(pinfo.rel_ts * 1e9 + 0.5)
end

local function to_nstime(ns)
  local seconds = ns >= 0 and math.floor(ns / 1e9) or math.ceil(ns / 1e9)
  return NSTime.new(seconds, ns - seconds * 1e9)
end

-- from_asker: the datagram is the request of the exchange; last: it is the last of the answer.
local function note(pinfo, version, id, from_asker, last)
  local asker = tostring(pinfo.src) .. ":" .. pinfo.src_port
  local board = tostring(pinfo.dst) .. ":" .. pinfo.dst_port
  if not from_asker then
    asker, board = board, asker
  end
  local key = version .. asker .. ">" .. board .. "/" .. id
  local exchange = exchanges[key]
  if from_asker then
    -- The same id again after an answer is another exchange; without one it is a repetition of the request.
    if exchange == nil or exchange.first then
      exchange = { request = pinfo.number, ns = relative_ns(pinfo) }
      exchanges[key] = exchange
    end
  elseif exchange ~= nil then
    exchange.first = exchange.first or pinfo.number
    if last then
      exchange.last = exchange.last or pinfo.number
    end
  end
  local entry = { exchange = exchange, from_asker = from_asker }
  if exchange ~= nil and not from_asker then
    entry.response_time = to_nstime(relative_ns(pinfo) - exchange.ns)
  end
  by_frame[pinfo.number] = entry
end

local function show_links(tree, pinfo)
  local entry = by_frame[pinfo.number]
  local exchange = entry and entry.exchange
  if exchange == nil then
    return
  end
  if entry.from_asker then
    if exchange.first then
      tree:add(f.response_in, exchange.first):set_generated()
      if exchange.last then
        tree:add(f.last_in, exchange.last):set_generated()
      end
    elseif pinfo.visited then
      -- Only a second pass (Wireshark, tshark -2) knows what did not come.
      tree:add_proto_expert_info(e.lost)
    end
  else
    tree:add(f.request_in, exchange.request):set_generated()
    tree:add(f.response_time, entry.response_time):set_generated()
  end
end

local function dissect_v1(tvb, pinfo, tree, to_board)
  local length = tvb:len()
  tree:add(f.version, 1):set_generated()
  local sequence = tvb:range(0, 2):le_uint()
  tree:add_le(f.sequence, tvb:range(0, 2))
  local declared = tvb:range(2, 2):le_uint()
  local item = tree:add_le(f.payload_length, tvb:range(2, 2))
  local sound = true
  if declared ~= length - 5 or declared % 2 == 1 then
    sound = false
    item:add_proto_expert_info(e.length, string.format("Length is wrong: %d declared, %d there", declared, length - 5))
  end
  local sum = tree:add(f.sum8, tvb:range(4, 1))
  local computed = payload_sum(tvb)
  if tvb:range(4, 1):uint() ~= computed then
    sound = false
    sum:add_proto_expert_info(e.sum, string.format("Payload sum is wrong: 0x%02x computed", computed))
  end
  local count = math.floor((length - 5) / 2)
  tree:add(f.tokens, count):set_generated()
  for index = 0, count - 1 do
    tree:add_le(f.id, tvb:range(5 + 2 * index, 2))
  end
  if sound and not pinfo.visited then
    note(pinfo, 1, sequence, to_board, true)
  end
  show_links(tree, pinfo)
  pinfo.cols.info:set(string.format("%s seq=%d tokens=%d", to_board and "request" or "answer", sequence, count))
end

local function dissect_v2(tvb, pinfo, tree)
  local length = tvb:len()
  tree:add(f.version, 2):set_generated()
  tree:add(f.magic, tvb:range(0, 2))
  local kind = tvb:range(2, 1):uint()
  local item = tree:add(f.type, tvb:range(2, 1))
  if types[kind] == nil then
    item:add_proto_expert_info(e.type)
  end
  local flags = tvb:range(3, 1)
  local flag_tree = tree:add(f.flags, flags)
  flag_tree:add(f.first, flags)
  flag_tree:add(f.last, flags)
  local last = bit.band(flags:uint(), 2) ~= 0
  local id = tvb:range(4, 4):le_uint()
  tree:add_le(f.request_id, tvb:range(4, 4))
  if kind == 5 then
    tree:add(f.sentinel, tvb:range(4, 4), 0xFFFFFFFF - id)
  end
  tree:add_le(f.sequence, tvb:range(8, 4))
  tree:add_le(f.boot_id, tvb:range(12, 4))
  local declared = tvb:range(16, 2):le_uint()
  item = tree:add_le(f.payload_length, tvb:range(16, 2))
  if declared ~= length - 52 then
    item:add_proto_expert_info(e.length, string.format("Length is wrong: %d declared, %d there", declared, length - 52))
  end
  item = tree:add_le(f.reserved, tvb:range(18, 2))
  if tvb:range(18, 2):le_uint() ~= 0 then
    item:add_proto_expert_info(e.reserved)
  end
  tree:add_le(f.t_rx, tvb:range(20, 8))
  tree:add_le(f.t_ready, tvb:range(28, 8))
  tree:add_le(f.t_send, tvb:range(36, 8))
  tree:add_le(f.prev_queued, tvb:range(44, 4))
  item = tree:add_le(f.crc32, tvb:range(48, 4))
  local computed = header_crc(tvb)
  local sound = tvb:range(48, 4):le_uint() == computed
  if not sound then
    item:add_proto_expert_info(e.crc, string.format("Header CRC is wrong: 0x%08x computed", computed))
  end

  local at = 52
  if kind == 1 and length >= 56 then
    tree:add_le(f.answer_tokens, tvb:range(52, 2))
    at = 56
  end
  local count = math.floor((length - at) / 4)
  if kind == 5 then
    for index = 0, math.min(count, 8) - 1 do
      local range = tvb:range(52 + 4 * index, 4)
      tree:add_le(f.counter, range):prepend_text(counters[index + 1] .. ": ")
    end
    count = 0
  else
    tree:add(f.tokens, count):set_generated()
    for index = 0, count - 1 do
      tree:add_le(f.id, tvb:range(at + 4 * index, 4))
    end
  end

  if sound and not pinfo.visited then
    if kind == 1 then
      note(pinfo, 2, id, true, false)
    elseif kind == 2 or kind == 4 then
      note(pinfo, 2, id, false, last or kind == 4)
    elseif kind == 5 then
      note(pinfo, 2, id, declared == 0, true)
    end
  end
  show_links(tree, pinfo)
  local what = kind == 5 and (kinds[0xFFFFFFFF - id] or "unknown") .. " sentinel" or (types[kind] or "unknown")
  pinfo.cols.info:set(string.format("%s id=%d seq=%d tokens=%d", what, id, tvb:range(8, 4):le_uint(), count))
end

function token.dissector(tvb, pinfo, root)
  local length = tvb:len()
  if length < 5 then
    return 0
  end
  local tree = root:add(token, tvb:range())
  local is_v2 = length >= 52 and tvb:range(0, 2):string() == "T2"
  if is_v2 and tvb:range(2, 2):le_uint() == length - 5 and tvb:range(4, 1):uint() == payload_sum(tvb) then
    is_v2 = false -- A token-v1 datagram whose sequence number happens to spell the magic.
  end
  if is_v2 then
    pinfo.cols.protocol:set("token-v2")
    dissect_v2(tvb, pinfo, tree)
  else
    pinfo.cols.protocol:set("token-v1")
    dissect_v1(tvb, pinfo, tree, pinfo.dst_port == pinfo.match_uint)
  end
  return length
end

local registered = nil

function token.prefs_changed()
  local udp = DissectorTable.get("udp.port")
  if registered ~= nil then
    udp:remove(registered, token)
  end
  registered = token.prefs.ports
  udp:add(registered, token)
end

registered = token.prefs.ports
DissectorTable.get("udp.port"):add(registered, token)
