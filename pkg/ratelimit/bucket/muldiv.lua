-- muldiv returns n * r / d, whole and remainder, for 0 <= n < 2^34 and 0 <= r < d <= 2^34. It divides a product of
-- 2^53 or more in two steps, as in long division, in base 2^17. No number in them is above 2^52.
local function muldiv(n, r, d)
  local product = n * r
  if product < WHOLE then
    local rest = product % d
    return (product - rest) / d, rest
  end
  local low = n % 131072
  local high = (n - low) / 131072 * r
  local carry = high % d
  local sum = carry * 131072 + low * r
  local rest = sum % d
  return (high - carry) / d * 131072 + (sum - rest) / d, rest
end
