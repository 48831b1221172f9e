local seal, cursor, count = ARGV[1], ARGV[2], ARGV[3]
local max_records, max_id = tonumber(ARGV[4]), tonumber(ARGV[5])
local max_value, max_page = tonumber(ARGV[6]), tonumber(ARGV[7])
if redis.call('HSTRLEN', KEYS[1], seal) > max_value then
	return {'value', seal}
end
local value = redis.call('HGET', KEYS[1], seal) or ''
if cursor == '' then
	return {'page', value, '0', {}}
end
if redis.call('HLEN', KEYS[1]) > max_records + 1 then
	return {'records'}
end
local page = redis.call('HSCAN', KEYS[1], cursor, 'COUNT', count)
local bytes = 0
for i = 1, #page[2], 2 do
	local id, value = page[2][i], page[2][i + 1]
	if #id > max_id then
		return {'id', string.sub(id, 1, max_id)}
	end
	if #value > max_value then
		return {'value', id}
	end
	bytes = bytes + #id + #value
end
if bytes > max_page then
	return {'total'}
end
return {'page', value, page[1], page[2]}
