-- Copies of ledger_open that differ only in the protection: another lock instead of the advisory lock, or no lock. Each is made from
-- the text of the ledger's function. Needs competitors.holder (tables.sql).
DO $$
DECLARE
    lock_line CONSTANT text := 'is_locked := ledger_lock(number, holder, wait);';
    head      CONSTANT text := 'FUNCTION public.ledger_open(';
    opening   CONSTANT text := pg_get_functiondef('public.ledger_open'::regproc);
    competitor record;
BEGIN
    IF strpos(opening, lock_line) = 0 OR strpos(opening, head) = 0 THEN
        RAISE EXCEPTION 'ledger_open has changed: the competitors cannot replace its lock';
    END IF;
    FOR competitor IN
        VALUES
            ('row_lock', 'PERFORM FROM competitors.holder h WHERE h.holder_id = holder FOR UPDATE;'),
            -- Not ledger_entry itself, for which the application has no right to such a lock; all of these spends meet here all the same.
            ('table_lock', 'LOCK TABLE competitors.holder IN EXCLUSIVE MODE;'),
            -- The isolation of the transaction protects it.
            ('serializable', '')
    LOOP
        EXECUTE replace(replace(opening, head, format('FUNCTION competitors.open_by_%s(', competitor.column1)), lock_line, competitor.column2);
    END LOOP;
END $$;
