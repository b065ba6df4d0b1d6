-- A database in memory, as castro's OSDB: loaded, indexed, looked up at random places, changed, summed.
CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, town TEXT, amount INTEGER, note TEXT);
WITH RECURSIVE number (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < 205000)
INSERT INTO orders SELECT i, printf('customer %d of street %d', i * 7919 % 100003, i * 31 % 977),
	printf('town %d', i * i % 1013), i * 2654435761 % 1000003,
	printf('%d pieces of article %x, ordered on day %d, to be sent to %x until day %d, not paid, %d',
		i % 17, i * 40503 % 65521, i % 365, i * 2246822519 % 4294967291, i % 365 + 9, i * 3266489917 % 668265263)
FROM number;
CREATE INDEX orders_name ON orders (name);
CREATE INDEX orders_amount ON orders (amount);
SELECT town, count(*), sum(amount) FROM orders GROUP BY town ORDER BY 3 LIMIT 20;
WITH RECURSIVE key (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM key WHERE i < 6000)
SELECT sum(amount), sum(length(note)) FROM key JOIN orders ON id = i * 48271 % 205000;
UPDATE orders SET amount = amount + 1 WHERE id % 40 = 3;
SELECT name, note FROM orders WHERE amount BETWEEN 5000 AND 7000 ORDER BY amount, id LIMIT 200;
WITH RECURSIVE key (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM key WHERE i < 6000)
SELECT sum(amount), sum(length(note)) FROM key JOIN orders ON id = i * 69621 % 205000;
SELECT count(*), sum(length(note)) FROM orders WHERE note LIKE '%day 77,%';
